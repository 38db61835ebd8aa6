package vm

import (
	"context"
	"fmt"
	"io"
	"math"
	"slices"
)

// A Program is one of the two programs that Alternate compares.
type Program struct {
	Name string
	// Run runs the program once and returns its figure, in any unit.
	Run func(ctx context.Context) (float64, error)
}

// CommandProgram returns a Program that runs a command in a guest. The command
// is created for each round; parse reads the figure from its output.
func CommandProgram(name string, command func(ctx context.Context) *Cmd,
	parse func(output string) (float64, error)) Program {
	return Program{Name: name, Run: func(ctx context.Context) (float64, error) {
		out, err := command(ctx).CombinedOutput()
		if err != nil {
			return 0, fmt.Errorf("%w\n%s", err, out)
		}
		figure, err := parse(string(out))
		if err != nil {
			return 0, fmt.Errorf("%w in the output:\n%s", err, out)
		}
		return figure, nil
	}}
}

// Figures are the figures of one program, in order of the rounds.
type Figures struct {
	Name   string
	Values []float64
}

// Median returns the median of the figures.
func (f Figures) Median() float64 { return f.quantile(0.5) }

// Min returns the smallest figure.
func (f Figures) Min() float64 { return f.quantile(0) }

// Max returns the largest figure.
func (f Figures) Max() float64 { return f.quantile(1) }

// Spread returns the interquartile range divided by the median.
func (f Figures) Spread() float64 {
	return (f.quantile(0.75) - f.quantile(0.25)) / f.Median()
}

// quantile interpolates between the two nearest figures.
func (f Figures) quantile(q float64) float64 {
	if len(f.Values) == 0 {
		return math.NaN()
	}
	sorted := slices.Sorted(slices.Values(f.Values))
	at := q * float64(len(sorted)-1)
	low := int(at)
	high := min(low+1, len(sorted)-1)
	return sorted[low] + (at-float64(low))*(sorted[high]-sorted[low])
}

// A Report compares two programs.
type Report struct {
	A, B Figures
}

// Ratio returns the median, over the rounds, of A's figure divided by B's in
// the same round. It is not affected by rounds that are slow as a whole.
func (r Report) Ratio() float64 {
	ratios := Figures{Values: make([]float64, min(len(r.A.Values), len(r.B.Values)))}
	for i := range ratios.Values {
		ratios.Values[i] = r.A.Values[i] / r.B.Values[i]
	}
	return ratios.Median()
}

// Write writes the report as a table.
func (r Report) Write(w io.Writer) error {
	for _, f := range []Figures{r.A, r.B} {
		if _, err := fmt.Fprintf(w, "%-24s median %12.3f  min %12.3f  max %12.3f  spread %5.1f %%  rounds %d\n",
			f.Name, f.Median(), f.Min(), f.Max(), 100*f.Spread(), len(f.Values)); err != nil {
			return err
		}
	}
	_, err := fmt.Fprintf(w, "%s / %s: %.3f (median over the rounds)\n", r.A.Name, r.B.Name, r.Ratio())
	return err
}

// Alternate runs two programs in turn, so that other load of the machine
// affects both, and reports their figures. The order changes with each round.
// The first run that fails ends it.
func Alternate(ctx context.Context, a, b Program, rounds int) (Report, error) {
	report := Report{A: Figures{Name: a.Name}, B: Figures{Name: b.Name}}
	for round := range rounds {
		order := []func() error{
			func() error { return report.A.run(ctx, a) },
			func() error { return report.B.run(ctx, b) },
		}
		if round%2 == 1 {
			slices.Reverse(order)
		}
		for _, run := range order {
			if err := run(); err != nil {
				return report, fmt.Errorf("vm: round %d of %d: %w", round+1, rounds, err)
			}
		}
	}
	return report, nil
}

func (f *Figures) run(ctx context.Context, p Program) error {
	v, err := p.Run(ctx)
	if err != nil {
		return fmt.Errorf("%s: %w", p.Name, err)
	}
	f.Values = append(f.Values, v)
	return nil
}
