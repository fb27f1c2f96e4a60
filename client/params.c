/* SPDX-License-Identifier: MIT */
/*
 * Structs that grow: a caller built against an older or a newer header than this library. Any
 * thread.
 */
#include <string.h>

#include "client/internal.h"

/* Every one of these structs began with a size and a second word; nothing shorter was ever valid.
 */
#define PARAMS_MIN 8u
/* No struct of a later header is larger; a size above it is an uninitialised one. */
#define PARAMS_MAX 4096u

static int params_size(const void *params, size_t known, uint32_t *ret)
{
	uint32_t size;

	memcpy(&size, params, sizeof size);
	if (size < PARAMS_MIN || size > PARAMS_MAX)
		return -EINVAL;
	for (size_t i = known; i < size; i++)
		if (((const unsigned char *)params)[i] != 0)
			return -E2BIG;
	*ret = size;
	return 0;
}

int params_copy(void *destination, size_t known, const void *source)
{
	uint32_t size = 0;
	int r = params_size(source, known, &size);

	if (r < 0)
		return r;
	memset(destination, 0, known);
	memcpy(destination, source, size < known ? size : known);
	return 0;
}

int params_take(struct dmasync *ds, const char *name, void *destination, size_t known,
		const void *source)
{
	uint32_t size;
	int r = params_copy(destination, known, source);

	if (r == 0)
		return 0;
	memcpy(&size, source, sizeof size);
	if (r == -E2BIG)
		return control_error(ds, r,
				     "struct %s of %u bytes has something set behind the first "
				     "%zu, which are all that this library knows; it must be 0 "
				     "there",
				     name, size, known);
	return control_error(ds, r,
			     "struct %s says its size is %u; it must be %u to %u: fill it in with "
			     "%s_init()",
			     name, size, PARAMS_MIN, PARAMS_MAX, name);
}

int params_return(void *destination, const void *source, size_t known)
{
	uint32_t size = 0;
	int r = params_size(destination, known, &size);

	if (r < 0)
		return r;
	memcpy((char *)destination + sizeof size, (const char *)source + sizeof size,
	       (size < known ? size : known) - sizeof size);
	return 0;
}
