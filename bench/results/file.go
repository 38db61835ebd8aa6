package results

import (
	"bytes"
	"encoding/json"
	"fmt"
	"os"
	"path/filepath"
	"strconv"
)

// Read reads a file that Write has written.
func Read(file string) (*Run, error) {
	text, err := os.ReadFile(file)
	if err != nil {
		return nil, err
	}
	r := &Run{}
	if err := json.Unmarshal(text, r); err != nil {
		return nil, fmt.Errorf("%s: %w", file, err)
	}
	return r, nil
}

// Write writes a run to a file: JSON with one line for each place, series,
// distribution, benchmark and failure. Quantiles have five digits.
func (r *Run) Write(file string) error {
	text, err := r.encode()
	if err != nil {
		return err
	}
	if err := os.MkdirAll(filepath.Dir(file), 0o755); err != nil {
		return err
	}
	return os.WriteFile(file, text, 0o644)
}

func (r *Run) encode() ([]byte, error) {
	c, err := json.Marshal(r.C)
	if err != nil {
		return nil, err
	}
	var b bytes.Buffer
	fmt.Fprintf(&b, "{\n\"C\": %s", c)
	rounded := make([]Distribution, len(r.Distributions))
	for i, d := range r.Distributions {
		rounded[i] = d
		rounded[i].Quantiles = make([]float64, len(d.Quantiles))
		for j, q := range d.Quantiles {
			rounded[i].Quantiles[j] = round(q)
		}
	}
	for _, err := range []error{list(&b, "Places", r.Places), list(&b, "Series", r.Series),
		list(&b, "Distributions", rounded), list(&b, "Benchmarks", r.Benchmarks), list(&b, "Failures", r.Failures)} {
		if err != nil {
			return nil, err
		}
	}
	b.WriteString("\n}\n")
	return b.Bytes(), nil
}

// list writes a member of an object whose value is a list, one element in a line.
func list[T any](b *bytes.Buffer, name string, all []T) error {
	if len(all) == 0 {
		return nil
	}
	fmt.Fprintf(b, ",\n%q: [", name)
	for i, v := range all {
		text, err := json.Marshal(v)
		if err != nil {
			return err
		}
		if i > 0 {
			b.WriteByte(',')
		}
		fmt.Fprintf(b, "\n%s", text)
	}
	b.WriteString("\n]")
	return nil
}

// round returns v with five digits.
func round(v float64) float64 {
	v, err := strconv.ParseFloat(strconv.FormatFloat(v, 'g', 5, 64), 64)
	if err != nil { // not what FormatFloat writes
		panic(err)
	}
	return v
}
