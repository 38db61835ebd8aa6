package verbstest

import (
	"fmt"
	"testing"
)

// OnMachine is Main with the function that runs the tests.
var OnMachine = onMachine

// GoTest runs a test, and prints what it has logged and its result.
func GoTest(f func(t testing.TB)) {
	t := runTest(f)
	fmt.Print(t.log.String())
	if t.failed {
		fmt.Println("FAIL")
	} else {
		fmt.Println("PASS")
	}
}
