// Victim executes commands that use a device, while the test makes the device
// fail. It reads one command per line and replies with one line: "= result" or
// "! error".
//
//	open DEVICE     open a device, with a PD, memory and a CQ
//	pair            create two connected queue pairs
//	qpn             print the number of the first one
//	once [N]        N SENDs to the second one: print the statuses at both ends
//	make KIND       create an object, and close it
//	traffic         start to send messages continuously
//	stopped         wait for the end of the traffic: print the errors of post and wait
//	event           wait for an asynchronous event
//	star [N]        create a DCI, with N streams, two DCTs, and device memory
//	dci             print the number of the DCI
//	write D [S] [W] write to device memory through DCT D on stream S, with a wrong key ("key") or RKey ("rkey"):
//	                print the status, and the state of the DCI
//	recover         drain the DCI and move it through RESET to RTS: print how many requests were flushed
//	stream S        reset a stream
//	flow            start to write through DCT 0 continuously
//	flowed          wait for the end of that: print the error
//	watch           start to read and write device memory from the CPU continuously
//	watched         wait for the end of that: print the error
//	destroy D       close a DCT
//	replace D       create a DCT in the place of a closed one
//	close           close everything
//	left            print what was not released
package main

import (
	"bufio"
	"context"
	"encoding/json"
	"errors"
	"fmt"
	"os"
	"strconv"
	"strings"
	"time"

	"github.com/goverbs/goverbs/internal/leak"
	_ "github.com/goverbs/goverbs/provider/all"
	"github.com/goverbs/goverbs/uverbs"
)

// patience is the limit of every wait.
const patience = 90 * time.Second

type victim struct {
	dev  *uverbs.Context
	pd   *uverbs.PD
	mr   *uverbs.MR
	cq   *uverbs.CQ
	qp   [2]*uverbs.QP
	busy chan [2]error
	star star
}

func main() {
	leak.Enable()
	v := &victim{}
	fmt.Println("= ready")
	for in := bufio.NewScanner(os.Stdin); in.Scan(); {
		var line string
		if err := json.Unmarshal(in.Bytes(), &line); err != nil {
			fmt.Println("!", err)
			continue
		}
		words := strings.Fields(line)
		do := v.verbs()[words[0]]
		if do == nil {
			fmt.Println("! unknown command:", words[0])
			continue
		}
		if said, err := do(strings.Join(words[1:], " ")); err != nil {
			fmt.Println("! " + strings.ReplaceAll(err.Error(), "\n", "; "))
		} else {
			fmt.Println("= " + said)
		}
	}
}

func (v *victim) verbs() map[string]func(string) (string, error) {
	return map[string]func(string) (string, error){
		"open":    v.open,
		"pair":    v.pair,
		"qpn":     func(string) (string, error) { return strconv.Itoa(int(v.qp[0].QPN())), nil },
		"once":    v.once,
		"make":    func(kind string) (string, error) { return "", v.create(kind) },
		"traffic": v.traffic,
		"stopped": v.stopped,
		"event":   v.event,
		"close":   func(string) (string, error) { return "", v.close() },
		"left":    func(string) (string, error) { return fmt.Sprint(leak.Live()), nil },
		"star":    v.newStar,
		"dci":     func(string) (string, error) { return strconv.Itoa(int(v.star.dci.QPN())), nil },
		"write":   v.writeOnce,
		"recover": v.recover,
		"stream":  v.resetStream,
		"flow":    v.startFlow,
		"flowed":  v.flowEnd,
		"watch":   v.watch,
		"watched": v.watchEnd,
		"destroy": v.destroyDCT,
		"replace": v.replaceDCT,
	}
}

func (v *victim) open(name string) (_ string, err error) {
	if v.dev, err = uverbs.Open(name); err != nil {
		return "", err
	}
	if v.pd, err = v.dev.AllocPD(); err != nil {
		return "", err
	}
	if v.mr, err = v.pd.Alloc(4096, uverbs.LocalWrite); err != nil {
		return "", err
	}
	v.cq, err = v.dev.CreateCQ(uverbs.CQConfig{Entries: 256})
	return "", err
}

// queuePair creates a QP in state RESET.
func (v *victim) queuePair() (*uverbs.QP, error) {
	return v.pd.CreateQP(uverbs.QPConfig{Type: uverbs.RC, SendCQ: v.cq, MaxSendWR: 64, MaxRecvWR: 64})
}

func (v *victim) pair(string) (_ string, err error) {
	var ends [2]uverbs.Endpoint
	for i := range v.qp {
		if v.qp[i], err = v.queuePair(); err != nil {
			return "", err
		}
		if ends[i], err = v.qp[i].Endpoint(); err != nil {
			return "", err
		}
	}
	return "", errors.Join(v.qp[0].Connect(ends[1]), v.qp[1].Connect(ends[0]))
}

// once sends n messages and returns the statuses of their completions at both ends, in
// order. After a failed send it does not wait for the remaining receives.
func (v *victim) once(n string) (string, error) {
	count := 1
	if n != "" {
		var err error
		if count, err = strconv.Atoi(n); err != nil {
			return "", err
		}
	}
	ctx, cancel := context.WithTimeout(context.Background(), patience)
	defer cancel()
	for range count {
		if _, err := v.qp[1].PostRecv(uverbs.RecvWR{SGL: []uverbs.SGE{v.mr.SGE(0, 64)}}); err != nil {
			return "", err
		}
	}
	for range count {
		if _, err := v.qp[0].PostSend(v.send()); err != nil {
			return "", err
		}
	}
	var sent, received []string
	failed := false
	for len(sent) < count || len(received) < count && !failed {
		var wcs [1]uverbs.WC
		if _, err := v.cq.PollWait(ctx, wcs[:]); err != nil {
			return "", err
		}
		said := status(&wcs[0])
		failed = failed || wcs[0].Err() != nil
		if wcs[0].QPNum == v.qp[0].QPN() {
			sent = append(sent, said)
		} else {
			received = append(received, said)
		}
	}
	return strings.Join(sent, " + ") + " / " + strings.Join(received, " + "), nil
}

func (v *victim) send() uverbs.SendWR {
	return uverbs.SendWR{Opcode: uverbs.OpSend, Flags: uverbs.Signaled, SGL: []uverbs.SGE{v.mr.SGE(64, 64)}}
}

// close closes all objects.
func (v *victim) close() error {
	dev := v.dev
	*v = victim{}
	if dev == nil {
		return nil
	}
	return dev.Close()
}
