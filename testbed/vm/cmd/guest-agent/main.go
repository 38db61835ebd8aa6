// Guest-agent is the first process of the test bed's guests. The test bed
// builds it and puts it into their initramfs; it is of no use elsewhere.
package main

import "github.com/goverbs/goverbs/testbed/vm/internal/agent"

func main() { agent.Main() }
