package main

import (
	"context"
	"fmt"
	"os"

	"github.com/goverbs/goverbs/testbed/vm/bed"
)

func main() {
	var parts []bed.Part
	for _, a := range os.Args[1:] {
		parts = append(parts, bed.Part(a))
	}
	b, err := bed.Ensure(context.Background(), os.Stderr, parts...)
	fmt.Println(b, err)
}
