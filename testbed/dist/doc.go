// Package dist contains only tests, with the build tag vm. They run the container image of a release in a guest without
// any other program or library, against C's perftest in another guest.
package dist
