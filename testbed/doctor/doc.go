// Package doctor contains only tests, with the build tag vm. They plant faults in guests, and check that cmd/doctor
// finds each of them and that the command that it names mends it.
package doctor
