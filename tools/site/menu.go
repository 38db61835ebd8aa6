package main

// A group is a part of the menu that every page has.
type group struct {
	Title string
	Items []item
}

type item struct {
	Title, Link string
	Here        bool
}

// parts lists the pages of the menu, by their Markdown files.
var parts = []struct {
	title string
	pages [][2]string
}{
	{"Begin", [][2]string{{"Overview", "README.md"}, {"Should I use it?", "docs/should-i-use-it.md"},
		{"Guide", "docs/guide.md"}, {"Which package", "docs/levels.md"}, {"All pages", "docs/README.md"}}},
	{"Programs", [][2]string{{"From C to Go", "docs/c-to-go.md"}, {"Five functions", "docs/five-functions.md"},
		{"Testing", "docs/testing.md"}, {"Errors", "docs/errors.md"}, {"Performance", "docs/performance.md"},
		{"Peers on rsockets", "docs/rsocket-peers.md"}, {"Valkey over RDMA", "docs/valkey.md"},
		{"S3 over RDMA", "docs/s3.md"}}},
	{"Operation", [][2]string{{"Support", "docs/support.md"}, {"Doctor", "docs/doctor.md"},
		{"Deploy", "docs/deploy.md"}, {"Your adapter", "docs/hardware.md"}, {"Security", "SECURITY.md"},
		{"Changelog", "CHANGELOG.md"}}},
	{"Evidence", [][2]string{{"Compared with C", "docs/go-and-c.md"}, {"All figures", "docs/evidence/go-and-c.md"},
		{"Reliability", "docs/reliability.md"}, {"rdma-core's tests", "docs/evidence/parity.md"}}},
	{"Development", [][2]string{{"Architecture", "docs/architecture.md"}, {"Software ConnectX", "docs/soft-connectx.md"},
		{"perftest's protocol", "docs/perftest-wire.md"}, {"Contributing", "CONTRIBUTING.md"}}},
}

// menu returns the menu of a page.
func menu(name, root string) (all []group) {
	for _, part := range parts {
		g := group{Title: part.title}
		for _, p := range part.pages {
			g.Items = append(g.Items, item{Title: p[0], Link: root + htmlName(p[1]), Here: p[1] == name})
		}
		all = append(all, g)
	}
	return all
}
