// Package ioctltest is a kernel in memory for hermetic tests of what issues
// verbs ioctls. It decodes header and attributes as strictly as Linux does,
// keeps objects with the references between them, and answers.
//
// What the library does wrong is an errno to the library and a violation to
// the test: [Kernel.Close] reports violations, objects that were not destroyed
// and descriptors that were not given back.
package ioctltest
