/* A header made for the generator's tests: one of each shape. */
#include <linux/types.h>

#define TEST_NUMBER 12
#define TEST_MASK 0xf0
#define TEST_TEXT "no number"

enum test_list {
	TEST_A,
	TEST_B,
	TEST_D = 7,
};

enum {
	TEST_F_X = 1 << 0,
	TEST_F_Y = 1 << 3,
};

struct test_inner {
	__u8 a;
	__be32 b;
};

struct test_all {
	__aligned_u64 big;
	__s32 fd;
	union {
		__be32 imm_data;
		__u32 rkey;
	} ex;
	union {
		struct {
			__aligned_u64 addr;
			__u8 kind;
		} one;
		struct {
			__u16 x[3];
		} two;
	} op;
	struct test_inner inner;
	union {
		struct {
			__u8 lo;
			__u8 hi;
		} pair;
		__u16 word;
	} half;
	__u8 tail;
	__u64 words[2];
	struct {
		__u32 n;
	} caps;
	struct test_inner flex[];
};

struct test_bits {
	__u32 a : 3;
};

struct test_unknown {
	__u32 a;
	struct test_elsewhere b;
};
