/* tcc has no atomics. The module uses none; in structs, they are as large as others. */
#define _Atomic
