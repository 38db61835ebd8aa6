package ends_test

import (
	"context"
	"testing"

	"github.com/goverbs/goverbs/provider/mlx5/devx"
	"github.com/goverbs/goverbs/uverbs"
)

var devxEnds = ends{
	"a closed object": func(t *testing.T) []result {
		_, ctx, events := newEvents(t)
		waiting := make(chan error, 1)
		go func() { waiting <- second(events.Next(bounded(t))) }()
		must(t, 0, events.Close())
		text := []string{"channel of events", ctx.Name()}
		all := []result{
			{"EventChannel.Next that waits", <-waiting, text},
			{"EventChannel.Next", second(events.Next(bounded(t))), text},
			{"EventChannel.Subscribe", events.Subscribe(nil, 0, devx.PortChange), []string{"subscribe"}},
		}
		must(t, 0, ctx.Close())
		return append(all,
			result{"CreateEventChannel", second(devx.CreateEventChannel(ctx)), []string{"create", ctx.Name()}},
			result{"Command", devx.Command(ctx, make([]byte, 16), make([]byte, 16)), []string{"command", ctx.Name()}})
	},
	"a passed deadline":  func(t *testing.T) []result { return nextEvent(t, passed) },
	"a canceled context": func(t *testing.T) []result { return nextEvent(t, canceled) },
	"the device was removed": func(t *testing.T) []result {
		r, ctx, events := newEvents(t)
		waiting := make(chan error, 1)
		go func() { waiting <- second(events.Next(bounded(t))) }()
		r.client.RemoveDevice()
		text := []string{"channel of events", ctx.Name()}
		return []result{
			{"EventChannel.Next that waits", <-waiting, text},
			{"EventChannel.Next", second(events.Next(bounded(t))), text},
			{"CreateEventChannel", second(devx.CreateEventChannel(ctx)), []string{"create", ctx.Name()}},
		}
	},
}

func newEvents(t *testing.T) (r *rig, ctx *uverbs.Context, events *devx.EventChannel) {
	r = newRig(t)
	ctx = closeLater(t, on(t, r.client, func() (*uverbs.Context, error) { return uverbs.Open("") }))
	events, err := devx.CreateEventChannel(ctx)
	return r, ctx, closeLater(t, must(t, events, err))
}

func nextEvent(t *testing.T, begin func(*testing.T) context.Context) []result {
	_, ctx, events := newEvents(t)
	ended := begin(t)
	<-ended.Done()
	text := []string{"channel of events", ctx.Name()}
	return []result{
		{"EventChannel.Next", second(events.Next(begin(t))), text},
		{"EventChannel.Next at the end", second(events.Next(ended)), text},
	}
}
