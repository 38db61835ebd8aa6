// Package workflows checks the files of .github: its tests read the workflows and issue forms, and run the commands of
// the workflows that are cheap.
package workflows
