package main

import (
	"errors"
	"fmt"
	"strings"

	"github.com/goverbs/goverbs/provider/mlx5"
	"github.com/goverbs/goverbs/provider/mlx5/devx"
	"github.com/goverbs/goverbs/uverbs"
)

// capabilities returns what an mlx5 device has beyond the verbs, a line for each.
func capabilities(device string) (text string, err error) {
	c, err := uverbs.Open(device)
	if err != nil {
		return "", err
	}
	defer func() { err = errors.Join(err, c.Close()) }()
	var b strings.Builder
	a, err := c.QueryDevice()
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "device memory: %d bytes\n", a.MaxDMSize)
	m, err := mlx5.QueryDevice(c)
	if err != nil {
		return "", err
	}
	fmt.Fprintf(&b, "receives of out-of-order QPs: %+v\nstreams of DCIs: %+v\n", m.OutOfOrder, m.DCIStreams)
	for _, f := range []struct {
		name string
		try  func(*uverbs.Context) error
	}{{"DC", createDCI}, {"DevX", queryEQN}, {"reserved QP numbers", reserveQPN}} {
		has := "yes"
		if err := f.try(c); err != nil {
			has = "no: " + err.Error()
		}
		fmt.Fprintf(&b, "%s: %s\n", f.name, has)
	}
	return b.String(), nil
}

func createDCI(c *uverbs.Context) error {
	return createQP(c, uverbs.QPConfig{Type: uverbs.DCI, MaxSendWR: 1})
}

func queryEQN(c *uverbs.Context) error {
	_, err := devx.QueryEQN(c, 0)
	return err
}

func reserveQPN(c *uverbs.Context) error {
	n, err := mlx5.AllocReservedQPN(c)
	if err != nil {
		return err
	}
	return n.Close()
}
