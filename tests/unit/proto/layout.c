/* SPDX-License-Identifier: MIT */
/* The tables of layout.h. Constant; any thread. */
#include "layout.h"

#define MEMBER(s, field) ((struct s *)0)->field

/* Arrays decay: an element's size tells how many there are. */
#define TYPE(s, field)                                                                             \
	_Generic((MEMBER(s, field)), uint16_t : "u16", uint32_t : "u32", int32_t : "i32",          \
		 uint64_t : "u64", char * : "char", uint32_t * : "u32", uint64_t * : "u64",        \
		 struct dmasync_message : "dmasync_message", struct dmasync_unit : "dmasync_unit", \
		 struct dmasync_ring_completion : "dmasync_ring_completion")

#define ELEMENT(s, field)                                                                          \
	_Generic((MEMBER(s, field)), char * : sizeof(char), uint32_t * : sizeof(uint32_t),         \
		 uint64_t * : sizeof(uint64_t), default : sizeof(MEMBER(s, field)))

#define FIELD(s, field)                                                                            \
	{#field, TYPE(s, field), offsetof(struct s, field), sizeof(MEMBER(s, field)),              \
	 ELEMENT(s, field)},
#define FIELDS(s) static const struct layout_field fields_##s[] = {LAYOUT_##s(FIELD, s)};
LAYOUT_STRUCTS(FIELDS)

#define STRUCT(s) {#s, sizeof(struct s), sizeof fields_##s / sizeof fields_##s[0], fields_##s},
const struct layout_struct layout_structs[] = {LAYOUT_STRUCTS(STRUCT)};

const size_t layout_struct_count = sizeof layout_structs / sizeof layout_structs[0];

const char *layout_check(void)
{
	for (size_t i = 0; i < layout_struct_count; i++) {
		const struct layout_struct *s = &layout_structs[i];
		size_t end = 0;

		for (size_t j = 0; j < s->field_count; j++) {
			if (s->fields[j].offset != end)
				return s->name;
			end += s->fields[j].size;
		}
		if (end != s->size)
			return s->name;
	}
	return NULL;
}
