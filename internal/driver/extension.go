package driver

import "github.com/goverbs/goverbs/internal/ioctl"

// An Extension is an object of a uverbs.Context that another package implements, such as an object
// of DevX or a work queue of package ether.
type Extension interface {
	// With calls f unless the Extension is closed, and explains the error of f. Close waits.
	With(op string, f func() error) error
	Close() error
	// Explain explains the error of a command, which is not the one that creates or destroys it.
	Explain(op string, err error) error
	// String names the object in errors.
	String() string
	// Created records that the kernel has created the object. If Create then fails, the object is
	// destroyed. An object whose number is its handle, and whose Create does nothing more, does not
	// need it.
	Created(handle, number uint32)
	// NameEvents adds to a create command the attributes by which events name the object. It is for
	// objects with ExtensionConfig.DeviceGone.
	NameEvents(cmd *ioctl.Cmd, userHandle, eventFD uint16)
	// DestroyCommand issues a command that destroys the object: a second time if the device was
	// removed meanwhile. Destroy may call it.
	DestroyCommand(cmd *ioctl.Cmd) error
	// DeviceGone reports whether the device is gone.
	DeviceGone() bool
}

// A Rank is the position of an [Extension] in the order in which Close of the Context closes
// objects. Those of a rank are closed in the order from the newest to the oldest.
type Rank uint8

const (
	BeforeAll   Rank = iota // before all other objects
	AfterQPs                // after QPs: for objects that QPs use
	AfterTables             // after those, and before CQs
)

// An ExtensionConfig says how an [Extension] is created and destroyed.
type ExtensionConfig struct {
	Kind string // for errors
	Rank Rank
	// Parents are objects of package uverbs, and Extensions, that cannot be closed earlier.
	Parents []any
	// Memory says that the object is a key of memory, which no MR has: see [MRs.AddUnknown].
	Memory bool
	// DeviceGone is called when the device is gone. It may run concurrently with any other call. An
	// object that has it also has asynchronous events. It is nil for others.
	DeviceGone func()
	// Object is the uverbs.AsyncEvent.Object of these events.
	Object any
	// Receives returns, of a queue, the uverbs.CQ in which its receives complete, and how many there
	// can be. It is called after Create. It is nil for other objects.
	Receives func() (cq any, n int)
	// Create creates the object in the kernel, and returns its handle or descriptor.
	Create func(Extension) (handle uint32, err error)
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
