// Package arch holds tests alone: of the rules by which the code of this
// module is laid out.
package arch
