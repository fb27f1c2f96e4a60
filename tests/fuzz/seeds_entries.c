/* SPDX-License-Identifier: MIT */
/* Seeds of entries: batches, rings, and clients that submit them. One thread. */
#include "proto/ring.h"
#include "seeds.h"

/* fuzz_batch.c: mode, tuning, first position, count, bytes of steps, units. */
void seeds_write_batches(void)
{
	for (unsigned int mode = 0; mode < 128; mode += 5) {
		for (unsigned int strided = 0; strided < 2; strided++) {
			struct seed seed = {.size = 0};
			char name[32];

			put_u8(&seed, mode);
			put_u8(&seed, mode & 8 ? 0xff : 0);
			put_u32(&seed, UINT32_MAX - 3);
			put_u8(&seed, strided ? 8 : 6);
			put_u8(&seed, 4);
			put_u32(&seed, 0x10203);
			for (uint32_t i = 0; i < (strided ? 4 : 6); i++) {
				struct dmasync_unit unit = {
					.word = dmasync_unit_word(
						i % 6 + 1, (enum dmasync_sync)(1 + i % 2),
						(enum dmasync_direction)(1 + i % 3), strided != 0),
					.length = 1000,
					.offset = 100 * i,
				};
				struct dmasync_unit_rows by = {.rows = i, .stride = 1000 + 300 * i};

				put(&seed, &unit, sizeof unit);
				if (strided)
					put(&seed, &by, sizeof by);
			}
			snprintf(name, sizeof name, "mode-%u", mode);
			seed_save(&seed, "batch", name, strided ? "strided" : "plain");
		}
	}
}

/* fuzz_ring.c: mode, fence's and worker's tuning, shapes; a submit, a few turns, a look. */
void seeds_write_rings(void)
{
	for (unsigned int mode = 0; mode < 8; mode++) {
		for (unsigned int rewrite = 0; rewrite < 16; rewrite++) {
			struct seed seed = {.size = 0};
			char name[32], how[32];

			put_u8(&seed, mode);
			put_u16(&seed, rewrite & 1 ? 0x0100 : 0);
			put_u8(&seed, 1 | 5 << 2);
			if (mode & 1)
				put_u8(&seed, 0 | 3 << 2 | 2u << 5);
			for (unsigned int batch = 0; batch < 3; batch++) {
				put_u8(&seed, 0); /* submit */
				put_u8(&seed, batch * 4 + 1);
				for (unsigned int i = 0; i < batch * 4 + 1; i++) {
					put_u8(&seed, (i + rewrite) & 7);
					put_u8(&seed, (1 + i % 2) | (1 + i % 3) << 2);
					put_u16(&seed, 100 * i);
					put_u16(&seed, 64 * i);
				}
				put_u8(&seed, 4); /* turns */
				if (rewrite >= 8) {
					put_u8(&seed, 7);
					put_u8(&seed, rewrite & 7);
					put_u32(&seed, 0xffffff03);
					put_u32(&seed, 0x00100400);
				}
				put_u8(&seed, 6);
				put_u8(&seed, 3); /* reap */
			}
			put_u8(&seed, 9);
			snprintf(name, sizeof name, "mode-%u", mode);
			snprintf(how, sizeof how, "%u", rewrite);
			seed_save(&seed, "ring", name, how);
		}
	}
}

/* fuzz_client.c: bytes of the client's steps, and between them those of the daemon's answers. */
static void put_life(struct seed *seed, unsigned int manner, unsigned int hello, unsigned int add,
		     unsigned int create, unsigned int deed)
{
	const uint8_t filled[6] = {0x11, 3, 7};

	put_u8(seed, manner); /* comes: connect() succeeds, HELLO's answer */
	put_u8(seed, 0);
	put_u8(seed, hello);
	put(seed, filled, hello ? sizeof filled : 0);
	put_u8(seed, 0x00); /* a buffer */
	put_u8(seed, 0x20);
	put_u8(seed, add);
	put(seed, filled, add ? sizeof filled : 0);
	put_u8(seed, 0x02); /* a queue; behind the answer how its fds are */
	put_u8(seed, 0x05);
	put_u8(seed, create);
	put_u8(seed, create > 15 ? create : 0);
	put(seed, filled, create ? sizeof filled : 0);
	for (unsigned int i = 0; i < 3; i++) {
		put_u8(seed, 0x03); /* a batch of two entries */
		put_u8(seed, 2);
		put_u32(seed, 0x00400040);
		put_u32(seed, 0x00200020);
		put_u8(seed, 0x08); /* a deed of the daemon */
		put_u8(seed, deed);
		put(seed, filled, deed ? sizeof filled : 0);
		put_u8(seed, i == 1 ? 0x05 : 0x06); /* looks, waits */
		put_u16(seed, 1000);
		put_u8(seed, 0x0b);
	}
	put_u8(seed, 0x07); /* SYNC */
	put_u8(seed, 0);
	put_u8(seed, 0x05);
	put_u8(seed, 0x0c);
	put_u8(seed, 0x0d); /* leaves */
}

void seeds_write_clients(void)
{
	for (unsigned int manner = 0; manner < 16; manner = manner ? manner * 2 : 1) {
		for (unsigned int what = 0; what < 48; what++) {
			const unsigned int spoiled = what < 16 ? what : what * 8;
			struct seed seed = {.size = 0};
			char name[32], how[32];

			put_life(&seed, manner, what % 4 == 1 ? spoiled & 0xff : 0,
				 what % 4 == 2 ? spoiled & 0xff : 0,
				 what % 4 == 3 ? spoiled & 0xff : 0,
				 what % 4 == 0 ? spoiled >> 2 & 0xff : 0);
			snprintf(name, sizeof name, "manner-%u", manner);
			snprintf(how, sizeof how, "%u", what);
			seed_save(&seed, "client", name, how);
		}
	}
}
