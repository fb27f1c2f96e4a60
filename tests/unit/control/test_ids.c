/* SPDX-License-Identifier: MIT */
/* Numbers that come around: none is given twice at a time, none is 0, old ones name nothing. */
#include "daemon/connection.h"

#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

static void test_queue_ids(void **state)
{
	struct queue queues[] = {{.id = UINT32_MAX}, {.id = 1}, {.id = 2}, {.id = 4}};
	struct client_queue list[4];
	struct client client = {.queues = list, .next_queue_id = UINT32_MAX - 2};

	(void)state;
	for (int i = 0; i < 4; i++)
		list[i] = (struct client_queue){.queue = &queues[i],
						.next = i < 3 ? &list[i + 1] : NULL};
	assert_true(queue_take_id(&client) == UINT32_MAX - 1);
	/* UINT32_MAX is taken, 0 stands for SYNC, 1 and 2 are taken. */
	assert_true(queue_take_id(&client) == 3);
	assert_true(queue_take_id(&client) == 5);
}

/* A place's generation goes on through all its values but 0, and begins again. */
static void test_buffer_handles(void **state)
{
	enum { LAPS = 3 };
	struct buffer_table table;
	struct buffer keeper = {0}, buffer = {0};
	uint32_t previous = 0, first = 0;

	(void)state;
	assert_int_equal(buffer_table_create(&table, 2), 0);
	assert_true(buffer_table_add(&table, &keeper));
	for (uint32_t i = 0; i < LAPS * BUFFER_GENERATION_MASK; i++) {
		buffer.handle = 0;
		assert_true(buffer_table_add(&table, &buffer));
		assert_true(buffer.handle >> BUFFER_INDEX_BITS != 0);
		assert_true(buffer.handle <= DMASYNC_UNIT_BUFFER_MASK);
		assert_true((buffer.handle & (BUFFER_TABLE_MAX - 1)) == 1);
		assert_true(buffer.handle != keeper.handle && buffer.handle != previous);
		assert_ptr_equal(buffer_table_get(&table, buffer.handle), &buffer);
		assert_ptr_equal(buffer_table_get(&table, keeper.handle), &keeper);
		if (i == 0)
			first = buffer.handle;
		else
			assert_null(buffer_table_get(&table, previous));
		/* The same again after all others, and not before. */
		assert_int_equal(buffer.handle == first, i % BUFFER_GENERATION_MASK == 0);
		previous = buffer.handle;
		assert_ptr_equal(buffer_table_remove(&table, buffer.handle), &buffer);
		assert_null(buffer_table_get(&table, buffer.handle));
	}
	assert_ptr_equal(buffer_table_remove(&table, keeper.handle), &keeper);
	buffer_table_free(&table);
}

/* A full table has no place, and every handle of a full one names its own buffer. */
static void test_full_table(void **state)
{
	struct buffer_table table;
	struct buffer *buffers = calloc(BUFFER_TABLE_MAX, sizeof *buffers), more = {0};

	(void)state;
	assert_non_null(buffers);
	assert_int_equal(buffer_table_create(&table, BUFFER_TABLE_MAX), 0);
	for (uint32_t i = 0; i < BUFFER_TABLE_MAX; i++)
		assert_true(buffer_table_add(&table, &buffers[i]));
	assert_false(buffer_table_add(&table, &more));
	for (uint32_t i = 0; i < BUFFER_TABLE_MAX; i++) {
		assert_ptr_equal(buffer_table_get(&table, buffers[i].handle), &buffers[i]);
		assert_ptr_equal(buffer_table_remove(&table, buffers[i].handle), &buffers[i]);
	}
	buffer_table_free(&table);
	free(buffers);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(test_queue_ids),
		cmocka_unit_test(test_buffer_handles),
		cmocka_unit_test(test_full_table),
	};

	return cmocka_run_group_tests_name("ids", tests, NULL, NULL);
}
