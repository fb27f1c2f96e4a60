/* SPDX-License-Identifier: MIT */
/*
 * Every struct of the protocol with its fields in order: what PROTOCOL.md is checked against, and
 * the golden bytes are read by. layout.c refuses a struct of which a byte is missing here.
 */
#ifndef DMASYNC_TEST_LAYOUT_H
#define DMASYNC_TEST_LAYOUT_H

#include "proto/message_table.h"

/* clang-format off */
#define LAYOUT_dmasync_message(F, s) F(s, size) F(s, opcode) F(s, flags) F(s, cookie)
#define LAYOUT_dmasync_error(F, s) \
	F(s, header) F(s, error) F(s, reason) F(s, bad_entry) F(s, reserved) F(s, text)
#define LAYOUT_dmasync_done_reply(F, s) F(s, header)
#define LAYOUT_dmasync_hello(F, s) \
	F(s, header) F(s, version_min) F(s, version_max) F(s, features_required) F(s, name)
#define LAYOUT_dmasync_hello_reply(F, s) \
	F(s, header) F(s, version) F(s, line_size) F(s, features) F(s, instance) \
	F(s, max_buffer_bytes) F(s, max_batch_lines) F(s, granule) F(s, max_buffers) \
	F(s, max_queues) F(s, max_depth) F(s, max_units) F(s, max_requests) F(s, daemon) \
	F(s, cache_ops)
#define LAYOUT_dmasync_buffer_add(F, s) F(s, header) F(s, flags) F(s, backend) F(s, size) F(s, handle) F(s, reserved)
#define LAYOUT_dmasync_buffer_add_reply(F, s) \
	F(s, header) F(s, handle) F(s, backend) F(s, kind) F(s, flags) F(s, size) F(s, exporter)
#define LAYOUT_dmasync_buffer_remove(F, s) F(s, header) F(s, handle) F(s, reserved)
#define LAYOUT_dmasync_queue_create(F, s) \
	F(s, header) F(s, depth) F(s, units) F(s, klass) F(s, flags)
#define LAYOUT_dmasync_queue_create_reply(F, s) \
	F(s, header) F(s, queue) F(s, worker) F(s, depth) F(s, units) F(s, cpu) F(s, spin_us)
#define LAYOUT_dmasync_queue_remove(F, s) F(s, header) F(s, queue) F(s, reserved)
#define LAYOUT_dmasync_sync_request(F, s) \
	F(s, header) F(s, count) F(s, reserved) F(s, user_data)
#define LAYOUT_dmasync_sync_reply(F, s) F(s, header) F(s, completion)
#define LAYOUT_dmasync_stats_reply(F, s) \
	F(s, header) F(s, uptime_ns) F(s, connections) F(s, batches) F(s, failed) F(s, entries) \
	F(s, elided) F(s, lines) F(s, bytes) F(s, barriers) F(s, kernel_syncs) F(s, reissued) \
	F(s, suspect_times) F(s, faults) F(s, worker_sleeps) F(s, refused) F(s, mapped_bytes) \
	F(s, clients) F(s, buffers) F(s, queues) F(s, workers) F(s, slice_overruns) \
	F(s, class_batches) F(s, class_lines) F(s, class_slices) F(s, class_waited_lines) \
	F(s, class_waited_entries) F(s, users) F(s, files) F(s, maps) \
	F(s, places) F(s, requests) F(s, answers) F(s, watches) F(s, realtime_workers) F(s, queue_bytes) \
	F(s, messages) F(s, over_limit) F(s, sum_errors) F(s, batches_split) F(s, parts) \
	F(s, barriers_shared) F(s, page_faults) F(s, realtime_drops) F(s, moved_queues)
#define LAYOUT_dmasync_histogram(F, s) F(s, header) F(s, phase) F(s, reserved)
#define LAYOUT_dmasync_histogram_reply(F, s) \
	F(s, header) F(s, phase) F(s, buckets) F(s, count) F(s, max_ns) F(s, sum_ns) F(s, bucket)
#define LAYOUT_dmasync_clients(F, s) F(s, header) F(s, after)
#define LAYOUT_dmasync_client_record(F, s) \
	F(s, id) F(s, pid) F(s, uid) F(s, buffers) F(s, queues) F(s, mapped_bytes) F(s, batches) \
	F(s, failed) F(s, lines) F(s, connected_ns) F(s, name) F(s, realtime_queues) \
	F(s, bulk_queues) F(s, queue_bytes) F(s, files) F(s, maps) F(s, places) \
	F(s, requests) F(s, answers) F(s, watches) F(s, moved_queues) F(s, reserved)
#define LAYOUT_dmasync_clients_reply(F, s) F(s, header) F(s, count) F(s, reserved)
#define LAYOUT_dmasync_users(F, s) F(s, header) F(s, from) F(s, reserved)
#define LAYOUT_dmasync_user_record(F, s) \
	F(s, uid) F(s, connections) F(s, buffers) F(s, queues) F(s, mapped_bytes) \
	F(s, queue_bytes) F(s, files) F(s, maps) F(s, places) F(s, requests) F(s, answers) \
	F(s, watches) F(s, over_limit)
#define LAYOUT_dmasync_users_reply(F, s) F(s, header) F(s, count) F(s, reserved)
#define LAYOUT_dmasync_batches(F, s) F(s, header) F(s, count) F(s, reserved)
#define LAYOUT_dmasync_batch_record(F, s) \
	F(s, batch_id) F(s, client_id) F(s, end_ns) F(s, user_data) F(s, lines) F(s, bytes) \
	F(s, queued_ns) F(s, issue_ns) F(s, barrier_ns) F(s, fence_ns) F(s, entries) F(s, elided) \
	F(s, flags) F(s, status) F(s, reason) F(s, bad_entry) F(s, queue) F(s, worker) F(s, pid) \
	F(s, waited_entries) F(s, waited_lines) F(s, klass) F(s, workers) F(s, shared_by)
#define LAYOUT_dmasync_batches_reply(F, s) F(s, header) F(s, count) F(s, lost)
#define LAYOUT_dmasync_watch(F, s) F(s, header) F(s, enable) F(s, reserved)
#define LAYOUT_dmasync_probe_reply(F, s) \
	F(s, header) F(s, line_size) F(s, granule) F(s, clean_picoseconds) \
	F(s, flush_picoseconds) F(s, barrier_picoseconds) F(s, workers) F(s, trapped) \
	F(s, fd_known) F(s, cache_ops) F(s, loop) F(s, backend) F(s, kind) F(s, flags) \
	F(s, error) F(s, size) F(s, exporter) F(s, why) F(s, errata) F(s, reserved) \
	F(s, loop_text)
#define LAYOUT_dmasync_ring_header(F, s) \
	F(s, magic) F(s, layout) F(s, depth) F(s, units) F(s, submissions_offset) \
	F(s, units_offset) F(s, completions_offset) F(s, size) F(s, start) F(s, ring_always) F(s, reserved0) \
	F(s, completions_read) F(s, reserved1) F(s, client_sleeping) F(s, reserved2)
#define LAYOUT_dmasync_unit(F, s) F(s, word) F(s, length) F(s, offset)
#define LAYOUT_dmasync_unit_rows(F, s) F(s, rows) F(s, reserved) F(s, stride)
#define LAYOUT_dmasync_submission(F, s) \
	F(s, seq) F(s, flags) F(s, user_data) F(s, submit_ns) F(s, unit_position) \
	F(s, unit_count) F(s, entry) F(s, deadline_us) F(s, client_cpu) F(s, reserved)
#define LAYOUT_dmasync_ring_completion(F, s) \
	F(s, seq) F(s, status) F(s, user_data) F(s, entries) F(s, flags) F(s, lines) F(s, bytes) \
	F(s, queued_ns) F(s, issue_ns) F(s, barrier_ns) F(s, fence_ns) F(s, batch_id) \
	F(s, bad_entry) F(s, reason) F(s, elided) F(s, shared_by) F(s, workers) F(s, reserved)
#define LAYOUT_dmasync_worker_page(F, s) F(s, sleeping) F(s, cpu) F(s, reserved)

#define LAYOUT_STRUCTS(X) \
	X(dmasync_message) X(dmasync_error) X(dmasync_done_reply) X(dmasync_hello) \
	X(dmasync_hello_reply) X(dmasync_buffer_add) X(dmasync_buffer_add_reply) \
	X(dmasync_buffer_remove) X(dmasync_queue_create) X(dmasync_queue_create_reply) \
	X(dmasync_queue_remove) X(dmasync_sync_request) X(dmasync_sync_reply) \
	X(dmasync_stats_reply) X(dmasync_histogram) X(dmasync_histogram_reply) \
	X(dmasync_clients) X(dmasync_client_record) X(dmasync_clients_reply) X(dmasync_users) \
	X(dmasync_user_record) X(dmasync_users_reply) X(dmasync_batches) \
	X(dmasync_batch_record) X(dmasync_batches_reply) X(dmasync_watch) X(dmasync_probe_reply) \
	X(dmasync_ring_header) X(dmasync_unit) X(dmasync_unit_rows) X(dmasync_submission) \
	X(dmasync_ring_completion) X(dmasync_worker_page)
/* clang-format on */

struct layout_field {
	const char *name, *type;
	size_t offset, size, element;
};

struct layout_struct {
	const char *name;
	size_t size, field_count;
	const struct layout_field *fields;
};

extern const struct layout_struct layout_structs[];
extern const size_t layout_struct_count;

/* NULL: every struct is covered by its fields, without a gap. Else what is wrong. */
const char *layout_check(void);

#endif
