package getopt

import (
	"fmt"
	"strconv"
)

// Flag returns a Set function that sets *v to true.
func Flag(v *bool) func(string) error {
	return func(string) error {
		*v = true
		return nil
	}
}

// String returns a Set function that stores the argument in *v.
func String(v *string) func(string) error {
	return func(value string) error {
		*v = value
		return nil
	}
}

// Int returns a Set function for an integer from low to high in decimal, octal
// (010) or hexadecimal (0x10), as strtol(3) with base 0 reads it.
func Int[T ~int | ~uint8 | ~uint16](v *T, low, high int64) func(string) error {
	return number(v, 0, low, high)
}

// Decimal returns a Set function for a decimal integer from low to high, as
// atoi(3) reads it: 010 is ten.
func Decimal[T ~int | ~uint8 | ~uint16](v *T, low, high int64) func(string) error {
	return number(v, 10, low, high)
}

func number[T ~int | ~uint8 | ~uint16](v *T, base int, low, high int64) func(string) error {
	return func(value string) error {
		n, err := strconv.ParseInt(value, base, 64)
		if err != nil || n < low || n > high {
			return fmt.Errorf("%q is not a number from %d to %d", value, low, high)
		}
		*v = T(n)
		return nil
	}
}
