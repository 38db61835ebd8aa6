package driver

import "github.com/goverbs/goverbs/internal/ioctl"

// An Extension is an object of a uverbs.Context that is not one of the verbs, such as an object of
// DevX. Close of the Context closes Extensions before all other objects, the newest first.
type Extension interface {
	// With calls f unless the Extension is closed, and explains the error of f. Close waits.
	With(op string, f func() error) error
	Close() error
}

// An ExtensionConfig says how an [Extension] is created and destroyed.
type ExtensionConfig struct {
	Kind string // for errors
	// Memory says that the object is a key of memory, which no MR has: see [MRs.AddUnknown].
	Memory bool
	// Create creates the object in the kernel, and returns its handle or descriptor.
	Create func() (handle uint32, err error)
	// Destroy destroys it. If it fails, the Extension stays open.
	Destroy func() error
	// Retire releases memory after the kernel has destroyed the object. It may be nil.
	Retire func() error
}

// Extend creates an [Extension] of a uverbs.Context. Package uverbs sets it.
var Extend func(ctx any, op string, cfg ExtensionConfig) (Extension, error)

// WithContext calls f with the device and the provider's part of a uverbs.Context, and explains the
// error of f. After Close, commands of the device fail. Package uverbs sets it.
var WithContext func(ctx any, op string, f func(dev *ioctl.Device, impl any) error) error

// A QPRef is what a provider's function for existing QPs needs to know of a uverbs.QP.
type QPRef struct {
	Device *ioctl.Device
	Impl   any // the provider's part of the Context
	QP     any // the provider's part of the QP, or nil
	Handle uint32
	Number uint32
	Type   uint8 // the uverbs.QPType
	State  uint8 // the uverbs.QPState, as far as this process knows
}

// WithQP calls f with a uverbs.QP, which is not closed or modified meanwhile, and explains the error
// of f. Package uverbs sets it.
var WithQP func(qp any, op string, f func(QPRef) error) error
