package getopt

import (
	"fmt"
	"strconv"
)

// Flag returns a Set that makes *v true.
func Flag(v *bool) func(string) error {
	return func(string) error {
		*v = true
		return nil
	}
}

// String returns a Set that keeps the argument.
func String(v *string) func(string) error {
	return func(value string) error {
		*v = value
		return nil
	}
}

// Int returns a Set for a number from low to high, in decimal, as 0x10 or as
// 010: what a C program reads by strtol(3).
func Int[T ~int | ~uint8 | ~uint16](v *T, low, high int64) func(string) error {
	return number(v, 0, low, high)
}

// Decimal returns a Set for a number from low to high, in decimal: what a C
// program reads by atoi(3), to which 010 is ten.
func Decimal[T ~int | ~uint8 | ~uint16](v *T, low, high int64) func(string) error {
	return number(v, 10, low, high)
}

func number[T ~int | ~uint8 | ~uint16](v *T, base int, low, high int64) func(string) error {
	return func(value string) error {
		n, err := strconv.ParseInt(value, base, 64)
		if err != nil || n < low || n > high {
			return fmt.Errorf("%q is no number from %d to %d", value, low, high)
		}
		*v = T(n)
		return nil
	}
}
