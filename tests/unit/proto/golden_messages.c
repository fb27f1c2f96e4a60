/* SPDX-License-Identifier: MIT */
/*
 * One example of every message and slot, built from the structs. Their bytes stand in golden/.
 * Constant; any thread.
 */
#include "golden.h"

#include <errno.h>

#define HEADER(bytes, op, bits, number)                                                            \
	.header = {.size = (bytes), .opcode = DMASYNC_OP_##op, .flags = (bits), .cookie = (number)}
#define REQUEST(type, op) HEADER(sizeof(struct type), op, 0, UINT64_C(0x1122334455667788))
#define REPLY(bytes, op) HEADER(bytes, op, DMASYNC_MESSAGE_REPLY, UINT64_C(0x1122334455667788))

/* ---- requests ---- */

static const struct dmasync_hello hello = {
	REQUEST(dmasync_hello, HELLO),
	.version_min = 1,
	.version_max = DMASYNC_PROTOCOL_VERSION,
	.features_required = DMASYNC_FEATURE_STRIDED | DMASYNC_FEATURE_DIRECT,
	.name = "isp",
};
static const struct dmasync_buffer_add buffer_add = {
	REQUEST(dmasync_buffer_add, BUFFER_ADD),
	.flags = DMASYNC_BUFFER_NO_CLEAN,
	.backend = DMASYNC_BACKEND_DIRECT,
	.size = 3110400,
	.handle = 0x030002,
};
static const struct dmasync_buffer_remove buffer_remove = {
	REQUEST(dmasync_buffer_remove, BUFFER_REMOVE),
	.handle = 0x030002,
};
static const struct dmasync_queue_create queue_create = {
	REQUEST(dmasync_queue_create, QUEUE_CREATE),
	.depth = 64,
	.units = 4096,
	.klass = DMASYNC_CLASS_BULK,
};
static const struct dmasync_queue_remove queue_remove = {
	REQUEST(dmasync_queue_remove, QUEUE_REMOVE),
	.queue = 7,
};
/* Units here and in the ring: handle 0x030002, for_cpu, from_device; then the same, strided. */
static const struct {
	struct dmasync_sync_request request;
	struct dmasync_unit plain, strided;
	struct dmasync_unit_rows rows;
} sync_units = {
	.request = {HEADER(sizeof sync_units, SYNC, 0, UINT64_C(0x1122334455667788)), .count = 3,
		    .user_data = UINT64_C(0xfedcba9876543210)},
	.plain = {.word = 0x0a030002, .length = 4096, .offset = UINT64_C(0x123456000)},
	.strided = {.word = 0x1a030002, .length = 640, .offset = UINT64_C(0x100040)},
	.rows = {.rows = 480, .stride = 1920},
};
static const struct dmasync_message stats = {
	.size = sizeof stats, .opcode = DMASYNC_OP_STATS, .cookie = UINT64_C(0x1122334455667788)};
static const struct dmasync_histogram histogram = {
	REQUEST(dmasync_histogram, HISTOGRAM),
	.phase = DMASYNC_PHASE_BARRIER,
};
static const struct dmasync_clients clients = {
	REQUEST(dmasync_clients, CLIENTS),
	.after = UINT64_C(0x0102030405060708),
};
static const struct dmasync_users users = {
	REQUEST(dmasync_users, USERS),
	.from = 1000,
};
static const struct dmasync_batches batches = {
	REQUEST(dmasync_batches, BATCHES),
	.count = 20,
};
static const struct dmasync_watch watch = {
	REQUEST(dmasync_watch, WATCH),
	.enable = 1,
};
static const struct dmasync_message probe = {
	.size = sizeof probe, .opcode = DMASYNC_OP_PROBE, .cookie = UINT64_C(0x1122334455667788)};

/* ---- answers ---- */

static const struct dmasync_error error = {
	HEADER(sizeof error, BUFFER_ADD, DMASYNC_MESSAGE_REPLY | DMASYNC_MESSAGE_ERROR,
	       UINT64_C(0x1122334455667788)),
	.error = -ENOSPC,
	.bad_entry = DMASYNC_NO_ENTRY,
	.text = "this connection has 64 buffers and max_buffers=64; remove one first",
};
static const struct dmasync_done_reply done_reply = {REPLY(sizeof done_reply, BUFFER_REMOVE)};
static const struct dmasync_done_reply queue_done_reply = {
	REPLY(sizeof queue_done_reply, QUEUE_REMOVE)};
static const struct dmasync_done_reply watch_reply = {REPLY(sizeof watch_reply, WATCH)};
static const struct dmasync_hello_reply hello_reply = {
	REPLY(sizeof hello_reply, HELLO),
	.version = 1,
	.line_size = 64,
	.features = DMASYNC_FEATURE_STRIDED | DMASYNC_FEATURE_DIRECT | DMASYNC_FEATURE_WATCH,
	.instance = UINT64_C(0x8899aabbccddeeff),
	.max_buffer_bytes = UINT64_C(1) << 32,
	.max_batch_lines = 1 << 26,
	.granule = 128,
	.max_buffers = 256,
	.max_queues = 16,
	.max_depth = 1024,
	.max_units = 65536,
	.max_requests = 32,
	.daemon = "0.1.0",
	.cache_ops = "arm64 dc cvac/civac",
};
static const struct dmasync_buffer_add_reply buffer_add_reply = {
	REPLY(sizeof buffer_add_reply, BUFFER_ADD),
	.handle = 0x030002,
	.backend = DMASYNC_BACKEND_DIRECT,
	.kind = DMASYNC_KIND_DMABUF,
	.flags = DMASYNC_BUFFER_GUARANTEE,
	.size = 3110400,
	.exporter = "system",
};
static const struct dmasync_queue_create_reply queue_create_reply = {
	REPLY(sizeof queue_create_reply, QUEUE_CREATE),
	.queue = 7,
	.worker = 1,
	.depth = 64,
	.units = 4096,
	.cpu = -1,
	.spin_us = 50,
};
static const struct dmasync_sync_reply sync_reply = {
	REPLY(sizeof sync_reply, SYNC),
	.completion = {.status = -ERANGE,
		       .user_data = UINT64_C(0xfedcba9876543210),
		       .entries = 2,
		       .flags = DMASYNC_COMPLETION_EXTENDED,
		       .queued_ns = 1500,
		       .batch_id = 65,
		       .bad_entry = 1,
		       .reason = DMASYNC_REASON_OUT_OF_RANGE},
};
static const struct dmasync_stats_reply stats_reply = {
	REPLY(sizeof stats_reply, STATS),
	.uptime_ns = UINT64_C(3600000000000),
	.connections = 1,
	.batches = 2,
	.failed = 3,
	.entries = 4,
	.elided = 5,
	.lines = 6,
	.bytes = 7,
	.barriers = 8,
	.kernel_syncs = 9,
	.reissued = 10,
	.suspect_times = 11,
	.faults = 12,
	.worker_sleeps = 13,
	.refused = 14,
	.mapped_bytes = 15,
	.clients = 16,
	.buffers = 17,
	.queues = 18,
	.workers = 19,
	.slice_overruns = 20,
	.class_batches = {21, 22, 23},
	.class_lines = {24, 25, 26},
	.class_slices = {27, 28, 29},
	.class_waited_lines = {30, 31, 32},
	.class_waited_entries = {33, 34, 35},
	.users = 36,
	.files = 37,
	.maps = 38,
	.places = 39,
	.requests = 40,
	.answers = 41,
	.watches = 42,
	.queue_bytes = 43,
	.messages = 44,
	.over_limit = 45,
	.sum_errors = 46,
	.batches_split = 47,
	.parts = 48,
	.barriers_shared = 49,
	.realtime_workers = 50,
	.page_faults = 51,
	.realtime_drops = 52,
	.moved_queues = 53,
};
static const struct dmasync_histogram_reply histogram_reply = {
	REPLY(sizeof histogram_reply, HISTOGRAM),  .phase = DMASYNC_PHASE_BARRIER,
	.buckets = DMASYNC_HISTOGRAM_BUCKETS,	   .count = 3,
	.max_ns = UINT64_C(2000000000000),	   .sum_ns = UINT64_C(2000000001007),
	.bucket = {[7] = 1, [111] = 1, [591] = 1}, /* 7 ns, 1000 ns, more than 2^40 ns */
};
static const struct {
	struct dmasync_clients_reply reply;
	struct dmasync_client_record records[2];
} clients_reply = {
	.reply = {REPLY(sizeof clients_reply, CLIENTS), .count = 2},
	.records = {{.id = 1,
		     .pid = 4711,
		     .uid = 1000,
		     .buffers = 3,
		     .queues = 1,
		     .mapped_bytes = 9437184,
		     .batches = 300,
		     .failed = 2,
		     .lines = 1234567,
		     .connected_ns = UINT64_C(5000000000),
		     .name = "isp",
		     .realtime_queues = 1,
		     .bulk_queues = 2,
		     .queue_bytes = 2293760,
		     .files = 7,
		     .maps = 5,
		     .places = 64,
		     .requests = 1,
		     .answers = 2,
		     .watches = 1,
		     .moved_queues = 4},
		    {.id = 2, .pid = 4712, .uid = 1000, .name = "consumer"}},
};

static const struct {
	struct dmasync_users_reply reply;
	struct dmasync_user_record records[2];
} users_reply = {
	.reply = {REPLY(sizeof users_reply, USERS), .count = 2},
	.records = {{.uid = 0, .connections = 1, .files = 2},
		    {.uid = 1000,
		     .connections = 2,
		     .buffers = 3,
		     .queues = 1,
		     .mapped_bytes = 9437184,
		     .queue_bytes = 2293760,
		     .files = 9,
		     .maps = 5,
		     .places = 64,
		     .requests = 1,
		     .answers = 2,
		     .watches = 1,
		     .over_limit = 12}},
};

#define RECORD                                                                                     \
	{                                                                                          \
		.batch_id = 65, .client_id = 1, .end_ns = UINT64_C(77000000000), .user_data = 42,  \
		.lines = 960, .bytes = 61440, .queued_ns = 900, .issue_ns = 12000,                 \
		.barrier_ns = 3000, .fence_ns = 0, .entries = 2, .elided = 1,                      \
		.flags = DMASYNC_COMPLETION_MIXED, .status = 0, .reason = DMASYNC_REASON_NONE,     \
		.bad_entry = DMASYNC_NO_ENTRY, .queue = 7, .worker = 1, .pid = 4711,               \
		.waited_entries = 3, .waited_lines = 4096, .klass = DMASYNC_CLASS_BULK,            \
		.workers = 3, .shared_by = 2                                                       \
	}
static const struct {
	struct dmasync_batches_reply reply;
	struct dmasync_batch_record records[1];
} batches_reply = {
	.reply = {REPLY(sizeof batches_reply, BATCHES), .count = 1},
	.records = {RECORD},
};
static const struct {
	struct dmasync_batches_reply reply;
	struct dmasync_batch_record records[1];
} watch_event = {
	.reply = {HEADER(sizeof watch_event, WATCH, DMASYNC_MESSAGE_EVENT,
			 UINT64_C(0x1122334455667788)),
		  .count = 1, .lost = 5},
	.records = {RECORD},
};
static const struct dmasync_probe_reply probe_reply = {
	REPLY(sizeof probe_reply, PROBE),
	.line_size = 64,
	.granule = 128,
	.clean_picoseconds = 1100,
	.flush_picoseconds = 1200,
	.barrier_picoseconds = 13000,
	.workers = 2,
	.trapped = 1,
	.fd_known = 1,
	.cache_ops = "arm64 dc cvac/civac",
	.loop = "io_uring",
	.backend = DMASYNC_BACKEND_KERNEL,
	.kind = DMASYNC_KIND_DMABUF,
	.flags = DMASYNC_BUFFER_GUARANTEE,
	.error = -EOPNOTSUPP,
	.size = 3110400,
	.exporter = "system",
	.why = "a sentence",
	.errata = DMASYNC_ERRATUM_SI_L1_4311569 | DMASYNC_ERRATUM_OLYMPUS_T410_1027,
	.loop_text = "restricted",
};

/* ---- the ring ---- */

static const struct dmasync_ring_header ring_header = {
	.magic = DMASYNC_RING_MAGIC,
	.layout = DMASYNC_RING_LAYOUT,
	.depth = 64,
	.units = 4096,
	.submissions_offset = 4096,
	.completions_offset = 4096 + 64 * 64,
	.units_offset = 4096 + 64 * 192,
	.size = 4096 + 64 * 192 + 4096 * 16,
	.start = DMASYNC_RING_START,
	.completions_read = 0xffffff3f,
	.client_sleeping = 1,
};
static const struct dmasync_unit unit = {
	.word = 0x0a030002,
	.length = 4096,
	.offset = UINT64_C(0x123456000),
};
static const struct dmasync_unit_rows unit_rows = {.rows = 480, .stride = 1920};
static const struct dmasync_submission submission = {
	.seq = DMASYNC_RING_START,
	.user_data = UINT64_C(0xfedcba9876543210),
	.submit_ns = UINT64_C(77000000000),
	.unit_position = 0xffffff05,
	.unit_count = 3,
	.client_cpu = 6,
};
static const struct dmasync_submission submission_in_place = {
	.seq = 1,
	.user_data = 42,
	.submit_ns = UINT64_C(77000000000),
	.entry = {.word = 0x0a030002, .length = 4096, .offset = UINT64_C(0x123456000)},
};
static const struct dmasync_ring_completion completion = {
	.seq = DMASYNC_RING_START,
	.user_data = UINT64_C(0xfedcba9876543210),
	.entries = 2,
	.flags = DMASYNC_COMPLETION_MIXED | DMASYNC_COMPLETION_REISSUED,
	.lines = 960,
	.bytes = 61440,
	.queued_ns = 900,
	.issue_ns = 12000,
	.barrier_ns = 3000,
};
static const struct dmasync_ring_completion completion_extended = {
	.seq = UINT32_MAX,
	.status = -EINVAL,
	.user_data = 42,
	.entries = 12,
	.flags = DMASYNC_COMPLETION_EXTENDED | DMASYNC_COMPLETION_SUSPECT_TIME,
	.fence_ns = 17,
	.batch_id = UINT64_C(0x0102030405060708),
	.bad_entry = 11,
	.reason = DMASYNC_REASON_BAD_STRIDE,
	.elided = 3,
	.shared_by = 2,
	.workers = 3,
};
static const struct dmasync_worker_page worker_page = {.sleeping = 1, .cpu = 4};

#define CASE(name, type) {#name, #type, &(name), sizeof(name)},
/* clang-format off */
const struct golden_case golden_cases[] = {
	CASE(hello, dmasync_hello)
	CASE(buffer_add, dmasync_buffer_add)
	CASE(buffer_remove, dmasync_buffer_remove)
	CASE(queue_create, dmasync_queue_create)
	CASE(queue_remove, dmasync_queue_remove)
	CASE(sync_units, dmasync_sync_request)
	CASE(stats, dmasync_message)
	CASE(histogram, dmasync_histogram)
	CASE(clients, dmasync_clients)
	CASE(users, dmasync_users)
	CASE(batches, dmasync_batches)
	CASE(watch, dmasync_watch)
	CASE(probe, dmasync_message)
	CASE(error, dmasync_error)
	CASE(done_reply, dmasync_done_reply)
	CASE(queue_done_reply, dmasync_done_reply)
	CASE(watch_reply, dmasync_done_reply)
	CASE(hello_reply, dmasync_hello_reply)
	CASE(buffer_add_reply, dmasync_buffer_add_reply)
	CASE(queue_create_reply, dmasync_queue_create_reply)
	CASE(sync_reply, dmasync_sync_reply)
	CASE(stats_reply, dmasync_stats_reply)
	CASE(histogram_reply, dmasync_histogram_reply)
	CASE(clients_reply, dmasync_clients_reply)
	CASE(users_reply, dmasync_users_reply)
	CASE(batches_reply, dmasync_batches_reply)
	CASE(watch_event, dmasync_batches_reply)
	CASE(probe_reply, dmasync_probe_reply)
	CASE(ring_header, dmasync_ring_header)
	CASE(unit, dmasync_unit)
	CASE(unit_rows, dmasync_unit_rows)
	CASE(submission, dmasync_submission)
	CASE(submission_in_place, dmasync_submission)
	CASE(completion, dmasync_ring_completion)
	CASE(completion_extended, dmasync_ring_completion)
	CASE(worker_page, dmasync_worker_page)
	{"client_record", "dmasync_client_record", &clients_reply.records[0],
	 sizeof clients_reply.records[0]},
	{"user_record", "dmasync_user_record", &users_reply.records[1],
	 sizeof users_reply.records[1]},
	{"batch_record", "dmasync_batch_record", &batches_reply.records[0],
	 sizeof batches_reply.records[0]},
};
/* clang-format on */

const size_t golden_case_count = sizeof golden_cases / sizeof golden_cases[0];
