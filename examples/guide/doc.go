// Package guide has the listings of docs/guide.md. Its tests run them.
package guide
