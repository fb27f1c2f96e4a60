/* SPDX-License-Identifier: MIT */
/* Histograms and batch records: the arithmetic, and a reader beside a writer. */
#include <pthread.h>
#include <setjmp.h>
#include <stdarg.h>
#include <stddef.h>
#include <stdint.h>
#include <stdlib.h>

#include <cmocka.h>

#include "daemon/histogram.h"
#include "daemon/records.h"

static void every_value_lies_in_its_bucket(void **state)
{
	(void)state;
	for (uint64_t power = 0; power < 64; power++) {
		for (int64_t near = -2; near <= 2; near++) {
			uint64_t value = (UINT64_C(1) << power) + (uint64_t)near;
			uint32_t bucket = histogram_bucket(value);

			assert_true(bucket < DMASYNC_HISTOGRAM_BUCKETS);
			if (value >> DMASYNC_HISTOGRAM_MAX_EXPONENT) {
				assert_int_equal(bucket, DMASYNC_HISTOGRAM_BUCKETS - 1);
				continue;
			}
			assert_true(value <= histogram_bucket_end(bucket));
			if (bucket > 0)
				assert_true(value > histogram_bucket_end(bucket - 1));
		}
	}
}

static void buckets_follow_one_another_and_are_narrow(void **state)
{
	(void)state;
	for (uint32_t i = 1; i < DMASYNC_HISTOGRAM_BUCKETS; i++) {
		uint64_t start = histogram_bucket_end(i - 1) + 1;
		uint64_t end = histogram_bucket_end(i);

		assert_int_equal(histogram_bucket(start), i);
		assert_int_equal(histogram_bucket(end), i);
		assert_true((end - start + 1) * 16 <= start || start < 16);
	}
	assert_int_equal(histogram_bucket_end(DMASYNC_HISTOGRAM_BUCKETS - 1),
			 (UINT64_C(1) << DMASYNC_HISTOGRAM_MAX_EXPONENT) - 1);
}

static void a_late_reader_is_told_what_it_lost(void **state)
{
	(void)state;
	struct records *records = calloc(1, sizeof *records);
	static struct dmasync_batch_record read[RECORDS_SIZE + 10];
	uint64_t cursor = 0, lost = 0;

	assert_non_null(records);
	for (uint64_t i = 0; i < RECORDS_SIZE + 100; i++) {
		struct dmasync_batch_record record = {.batch_id = i, .lines = i * 3};

		records_add(records, &record);
	}
	assert_int_equal(records_read(records, &cursor, RECORDS_SIZE + 10, read, &lost),
			 RECORDS_SIZE);
	assert_int_equal(lost, 100);
	for (uint64_t i = 0; i < RECORDS_SIZE; i++) {
		assert_int_equal(read[i].batch_id, i + 100);
		assert_int_equal(read[i].lines, (i + 100) * 3);
	}
	assert_int_equal(records_read(records, &cursor, 1, read, &lost), 0);
	free(records);
}

#define WRITES UINT64_C(300000)

static void *write_records(void *argument)
{
	for (uint64_t i = 0; i < WRITES; i++) {
		struct dmasync_batch_record record = {
			.batch_id = i, .lines = i, .issue_ns = i, .waited_entries = (uint32_t)i};

		records_add(argument, &record);
	}
	return NULL;
}

/* Never half a record, never out of order, and none unaccounted for. */
static void a_reader_beside_the_writer(void **state)
{
	(void)state;
	struct records *records = calloc(1, sizeof *records);
	static struct dmasync_batch_record read[64];
	uint64_t cursor = 0, lost = 0, got = 0, next = 0;
	pthread_t writer;

	assert_non_null(records);
	assert_int_equal(pthread_create(&writer, NULL, write_records, records), 0);
	while (cursor < WRITES) {
		uint32_t n = records_read(records, &cursor, 64, read, &lost);

		for (uint32_t i = 0; i < n; i++) {
			assert_true(read[i].batch_id >= next);
			next = read[i].batch_id + 1;
			assert_int_equal(read[i].lines, read[i].batch_id);
			assert_int_equal(read[i].issue_ns, read[i].batch_id);
			assert_int_equal(read[i].waited_entries, (uint32_t)read[i].batch_id);
		}
		got += n;
	}
	pthread_join(writer, NULL);
	assert_int_equal(got + lost, WRITES);
	free(records);
}

int main(void)
{
	const struct CMUnitTest tests[] = {
		cmocka_unit_test(every_value_lies_in_its_bucket),
		cmocka_unit_test(buckets_follow_one_another_and_are_narrow),
		cmocka_unit_test(a_late_reader_is_told_what_it_lost),
		cmocka_unit_test(a_reader_beside_the_writer),
	};

	return cmocka_run_group_tests_name("worker-counts", tests, NULL, NULL);
}
