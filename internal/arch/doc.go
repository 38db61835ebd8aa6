// Package arch contains only tests. They check the rules for this module's
// structure: imports, file names, function length and doc comments.
package arch
