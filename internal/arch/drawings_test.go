package arch

import (
	"bytes"
	"encoding/xml"
	"errors"
	"io"
	"os"
	"path/filepath"
	"strconv"
	"strings"
	"testing"
)

// TestDrawings checks that each drawing in docs is on a page, and that its texts and boxes are in the picture.
func TestDrawings(t *testing.T) {
	drawings, err := filepath.Glob(filepath.Join(root, "docs", "drawings", "*"))
	if err != nil || len(drawings) < 3 {
		t.Fatalf("drawings %v, %v", drawings, err)
	}
	var all strings.Builder
	for _, name := range pages(t) {
		text, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		all.Write(text)
	}
	for _, name := range drawings {
		if !strings.Contains(all.String(), "drawings/"+filepath.Base(name)+")") {
			t.Errorf("%s is on no page", name)
		}
		svg, err := os.ReadFile(name)
		if err != nil {
			t.Fatal(err)
		}
		for _, outside := range outsiders(t, svg) {
			t.Errorf("%s: %s", name, outside)
		}
	}
}

// outsiders returns the texts and boxes of an SVG that are not in the picture. A text of n characters is taken to be
// 6.6 n wide, as in the widest of the fonts.
func outsiders(t *testing.T, svg []byte) (all []string) {
	t.Helper()
	const letter = 6.6
	var page struct{ width, height float64 }
	texts := 0
	d := xml.NewDecoder(bytes.NewReader(svg))
	for {
		token, err := d.Token()
		if errors.Is(err, io.EOF) {
			if page.width == 0 || texts == 0 {
				all = append(all, "neither size nor text")
			}
			return all
		}
		if err != nil {
			return append(all, err.Error())
		}
		start, ok := token.(xml.StartElement)
		if !ok {
			continue
		}
		value := func(name string) float64 { return number(start, name) }
		left, right, bottom := value("x"), value("x")+value("width"), value("y")+value("height")
		switch start.Name.Local {
		case "svg":
			page.width, page.height = value("width"), value("height")
			continue
		case "text":
			texts++
			var text string
			if err := d.DecodeElement(&text, &start); err != nil {
				return append(all, err.Error())
			}
			wide := letter * float64(len([]rune(text)))
			if !strings.Contains(attribute(start, "class"), "start") {
				left -= wide / 2
			}
			right = left + wide
		case "rect":
		default:
			continue
		}
		if left < 0 || right > page.width || value("y") < 0 || bottom > page.height {
			all = append(all, start.Name.Local+" at "+attribute(start, "x")+", "+attribute(start, "y")+" is outside")
		}
	}
}

func attribute(e xml.StartElement, name string) string {
	for _, a := range e.Attr {
		if a.Name.Local == name {
			return a.Value
		}
	}
	return ""
}

// number returns a number of an element, or 0.
func number(e xml.StartElement, name string) float64 {
	v, err := strconv.ParseFloat(attribute(e, name), 64)
	if err != nil {
		return 0
	}
	return v
}

func TestOutsiders(t *testing.T) {
	const svg = `<svg width="100" height="50"><rect x="90" y="0" width="20" height="5"/>` +
		`<text x="50" y="60">a</text><text class="start" x="80" y="20">four</text><text x="50" y="20">four</text></svg>`
	want := "rect at 90, 0 is outside; text at 50, 60 is outside; text at 80, 20 is outside"
	if got := strings.Join(outsiders(t, []byte(svg)), "; "); got != want {
		t.Errorf("outside: %s, want %s", got, want)
	}
	if got := outsiders(t, []byte("<svg></g>")); len(got) != 1 {
		t.Errorf("%q", got)
	}
}
