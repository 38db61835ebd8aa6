package perftest

import (
	"fmt"
	"os"
)

// cpuTimes holds the time that all CPUs have spent, in ticks.
type cpuTimes struct{ user, idle float64 }

func readCPUTimes() (t cpuTimes, err error) {
	text, err := os.ReadFile("/proc/stat")
	if err != nil {
		return t, err
	}
	return parseCPUTimes(string(text))
}

// parseCPUTimes parses the first line of /proc/stat, which has the sums of all CPUs:
// user, nice, system, idle.
func parseCPUTimes(stat string) (t cpuTimes, err error) {
	var nice, system float64
	if _, err = fmt.Sscanf(stat, "cpu %f %f %f %f", &t.user, &nice, &system, &t.idle); err != nil {
		err = fmt.Errorf("/proc/stat begins with %.40q: %w", stat, err)
	}
	return t, err
}

// cpu returns the CPU times if --cpu_util needs them. normalizeDuration has checked that they
// can be read.
func (v *watchdog) cpu(o *Options) (t cpuTimes) {
	if o.CPUUtil {
		t, _ = readCPUTimes()
	}
	return t
}

// busy returns the CPU utilization in percent, as perftest computes it: user time as a
// share of user and idle time.
func (v *watchdog) busy() float64 {
	if v.end.Load() == 0 {
		return 0
	}
	user, idle := v.cpuEnd.user-v.cpuBegin.user, v.cpuEnd.idle-v.cpuBegin.idle
	if user+idle <= 0 {
		return 0
	}
	return 100 * user / (user + idle)
}
