/* SPDX-License-Identifier: MIT */
/*
 * Reading sysfs, procfs and directories of devices for probe. Owns nothing. Main thread.
 */
#include <dirent.h>
#include <limits.h>
#include <stdarg.h>
#include <stdlib.h>
#include <string.h>
#include <unistd.h>

#include "client/ctl/probe.h"

bool probe_read_line(char *text, size_t size, const char *root, const char *format, ...)
{
	char path[PATH_MAX];
	int prefix = snprintf(path, sizeof path, "%s", root);
	va_list arguments;

	if (prefix < 0 || (size_t)prefix >= sizeof path)
		return false;
	va_start(arguments, format);
	int n = vsnprintf(path + prefix, sizeof path - (size_t)prefix, format, arguments);
	va_end(arguments);
	if (n < 0 || (size_t)(prefix + n) >= sizeof path)
		return false;

	FILE *file = fopen(path, "re");
	if (!file)
		return false;
	bool got = fgets(text, (int)size, file) != NULL;
	fclose(file);
	if (got)
		text[strcspn(text, "\n")] = '\0';
	return got;
}

size_t probe_each(const char *root, const char *directory, const char *prefix,
		  void (*each)(void *context, const char *name), void *context)
{
	char path[PATH_MAX];
	struct dirent **entries;
	size_t found = 0;
	int n = snprintf(path, sizeof path, "%s%s", root, directory);

	if (n < 0 || (size_t)n >= sizeof path)
		return 0;
	int count = scandir(path, &entries, NULL, versionsort);
	if (count < 0)
		return 0;
	for (int i = 0; i < count; i++) {
		const char *name = entries[i]->d_name;

		if (name[0] != '.' && strncmp(name, prefix, strlen(prefix)) == 0) {
			each(context, name);
			found++;
		}
		free(entries[i]);
	}
	free(entries);
	return found;
}

void probe_link_name(const char *directory, const char *link, char *ret, size_t size)
{
	char path[PATH_MAX], target[PATH_MAX];
	int n = snprintf(path, sizeof path, "%s/%s", directory, link);

	ret[0] = '\0';
	if (n < 0 || (size_t)n >= sizeof path)
		return;
	ssize_t length = readlink(path, target, sizeof target - 1);
	if (length < 0)
		return;
	target[length] = '\0';
	const char *slash = strrchr(target, '/');
	snprintf(ret, size, "%s", slash ? slash + 1 : target);
}
