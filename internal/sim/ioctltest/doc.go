// Package ioctltest is a fake kernel for hermetic tests of packages that issue verbs ioctls. It
// decodes header and attributes as strictly as Linux does, keeps objects and the references
// between them, and replies.
//
// An invalid command is an errno to the library and a violation to the test: [Kernel.Close]
// reports violations, objects that were not destroyed and descriptors that were not closed.
package ioctltest
