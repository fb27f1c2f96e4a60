/* SPDX-License-Identifier: MIT */
/* dmasyncctl: the process around ctl.c, which the tests link too. Main thread. */
#include "client/ctl/ctl.h"

int main(int argc, char **argv)
{
	return ctl_main(argc, argv);
}
