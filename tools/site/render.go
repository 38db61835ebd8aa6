package main

import (
	"bytes"
	_ "embed"
	"fmt"
	"html/template"
	"os"
	"path"
	"path/filepath"
	"regexp"
	"strings"
	"unicode"

	"github.com/yuin/goldmark"
	"github.com/yuin/goldmark/ast"
	"github.com/yuin/goldmark/extension"
	"github.com/yuin/goldmark/parser"
	"github.com/yuin/goldmark/renderer/html"
	"github.com/yuin/goldmark/text"
)

const (
	repository = "https://github.com/goverbs/goverbs"
	styleName  = "style.css"
)

var (
	//go:embed style.css
	style []byte
	//go:embed page.html
	pageText     string
	pageTemplate = template.Must(template.New("page").Parse(pageText))
)

// A page is what the template shows.
type page struct {
	Title, Root, Source string
	Body                template.HTML
	Menu                []group
	Contents            []item
}

// render returns a page as HTML.
func (s *site) render(name string) ([]byte, error) {
	source, err := os.ReadFile(filepath.Join(s.root, filepath.FromSlash(name)))
	if err != nil {
		return nil, err
	}
	markdown := goldmark.New(goldmark.WithExtensions(extension.GFM), goldmark.WithRendererOptions(html.WithXHTML()),
		goldmark.WithParserOptions(parser.WithAutoHeadingID()))
	document := markdown.Parser().Parse(text.NewReader(source),
		parser.WithContext(parser.NewContext(parser.WithIDs(anchors{}))))
	p := page{Title: path.Base(name), Root: strings.Repeat("../", strings.Count(name, "/")),
		Source: repository + "/blob/main/" + name}
	err = ast.Walk(document, func(n ast.Node, entering bool) (ast.WalkStatus, error) {
		if !entering {
			return ast.WalkContinue, nil
		}
		switch n := n.(type) {
		case *ast.Heading:
			p.heading(n, source)
		case *ast.Link:
			n.Destination, err = s.link(name, n.Destination)
		case *ast.Image:
			err = s.picture(name, n.Destination)
		}
		return ast.WalkContinue, err
	})
	if err != nil {
		return nil, err
	}
	var body, out bytes.Buffer
	if err := markdown.Renderer().Render(&body, source, document); err != nil {
		return nil, err
	}
	p.Body = template.HTML(body.String()) // of our own files, and goldmark omits their HTML
	p.Menu = menu(name, p.Root)
	if err := pageTemplate.Execute(&out, p); err != nil {
		return nil, err
	}
	return out.Bytes(), nil
}

// heading takes the title from the first heading, and the contents from those of the second level.
func (p *page) heading(h *ast.Heading, source []byte) {
	title := linkText.ReplaceAllString(string(h.Lines().Value(source)), "$1")
	title = strings.ReplaceAll(strings.TrimSpace(title), "`", "")
	id, _ := h.AttributeString("id")
	switch h.Level {
	case 1:
		p.Title = title
	case 2:
		p.Contents = append(p.Contents, item{Title: title, Link: fmt.Sprintf("#%s", id)})
	}
}

// link returns where a link of a page leads on the site: to another page, or to the file on GitHub.
func (s *site) link(from string, to []byte) ([]byte, error) {
	target, anchor, found := strings.Cut(string(to), "#")
	if target == "" || strings.Contains(target, "://") || strings.HasPrefix(target, "mailto:") {
		return to, nil
	}
	name := path.Join(path.Dir(from), target)
	if !s.files[name] {
		return nil, fmt.Errorf("a link to %s, which is not in the repository", to)
	}
	if s.files[path.Join(name, "README.md")] {
		name = path.Join(name, "README.md")
	}
	switch {
	case path.Ext(name) == ".md":
		target = strings.TrimSuffix(target, ".md") + ".html"
		if path.Base(name) == "README.md" {
			target = strings.Repeat("../", strings.Count(from, "/")) + htmlName(name)
		}
	default:
		target = repository + "/tree/main/" + name
	}
	if found {
		target += "#" + anchor
	}
	return []byte(target), nil
}

// picture notes a picture of the repository, which the site has at the same place.
func (s *site) picture(from string, to []byte) error {
	name := path.Join(path.Dir(from), string(to))
	if !s.files[name] {
		return fmt.Errorf("a picture %s, which is not in the repository", to)
	}
	s.pictures[name] = true
	return nil
}

var linkText = regexp.MustCompile(`\[([^\]]*)\]\([^)]*\)`)

// anchors are the ids of a page's headings, as GitHub makes them.
type anchors map[string]bool

// Generate implements [parser.IDs].
func (all anchors) Generate(value []byte, _ ast.NodeKind) []byte {
	heading := linkText.ReplaceAllString(strings.TrimSpace(string(value)), "$1")
	anchor := strings.Map(func(r rune) rune {
		switch {
		case r == ' ':
			return '-'
		case unicode.IsLetter(r), unicode.IsDigit(r), r == '-', r == '_':
			return unicode.ToLower(r)
		}
		return -1
	}, heading)
	unique := anchor
	for i := 1; all[unique]; i++ {
		unique = fmt.Sprintf("%s-%d", anchor, i)
	}
	all[unique] = true
	return []byte(unique)
}

// Put implements [parser.IDs].
func (all anchors) Put(value []byte) { all[string(value)] = true }
