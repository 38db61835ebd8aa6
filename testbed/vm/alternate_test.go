package vm

import (
	"context"
	"errors"
	"math"
	"strings"
	"testing"
)

func TestFigures(t *testing.T) {
	f := Figures{Values: []float64{5, 1, 3, 2, 4}}
	for name, c := range map[string][2]float64{
		"median": {f.Median(), 3}, "min": {f.Min(), 1}, "max": {f.Max(), 5}, "spread": {f.Spread(), 2.0 / 3},
	} {
		if math.Abs(c[0]-c[1]) > 1e-9 {
			t.Errorf("%s is %v, want %v", name, c[0], c[1])
		}
	}
	if !math.IsNaN((Figures{}).Median()) {
		t.Error("no figures have a median")
	}
}

func TestAlternate(t *testing.T) {
	var order strings.Builder
	program := func(name string, figure float64) Program {
		return Program{name, func(context.Context) (float64, error) {
			order.WriteString(name)
			figure++
			return figure, nil
		}}
	}
	r, err := Alternate(t.Context(), program("a", 0), program("b", 1), 3)
	if err != nil {
		t.Fatal(err)
	}
	if order.String() != "abbaab" {
		t.Errorf("order %s", &order)
	}
	if want := 2.0 / 3; math.Abs(r.Ratio()-want) > 1e-9 { // of 1/2, 2/3, 3/4
		t.Errorf("ratio %v, want %v", r.Ratio(), want)
	}
	var text strings.Builder
	if err := r.Write(&text); err != nil || !strings.Contains(text.String(), "a / b: 0.667") {
		t.Errorf("report %q, %v", &text, err)
	}
}

func TestAlternateError(t *testing.T) {
	broken := errors.New("broken")
	good := Program{"good", func(context.Context) (float64, error) { return 1, nil }}
	bad := Program{"bad", func(context.Context) (float64, error) { return 0, broken }}
	if _, err := Alternate(t.Context(), good, bad, 2); !errors.Is(err, broken) || !strings.Contains(err.Error(), "bad") {
		t.Errorf("error %v", err)
	}
}
