package bed

import (
	"bufio"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"io/fs"
	"os"
	"path/filepath"

	"golang.org/x/sys/unix"
)

// hashFiles writes the SHA-256 of every regular file under dir into the file
// list, in the format of sha256sum with paths relative to dir.
func hashFiles(dir, list string) error {
	f, err := os.Create(list)
	if err != nil {
		return err
	}
	w := bufio.NewWriter(f)
	err = eachFile(dir, func(rel string) error {
		sum, err := hashFile(filepath.Join(dir, rel))
		if err == nil {
			_, err = fmt.Fprintf(w, "%s  %s\n", sum, rel)
		}
		return err
	})
	return errors.Join(err, w.Flush(), f.Close())
}

// eachFile calls do with the relative path of every regular file under dir, in
// lexical order.
func eachFile(dir string, do func(rel string) error) error {
	return filepath.WalkDir(dir, func(path string, d fs.DirEntry, err error) error {
		if err != nil || !d.Type().IsRegular() {
			return err
		}
		rel, err := filepath.Rel(dir, path)
		if err != nil {
			return err
		}
		return do(rel)
	})
}

func hashFile(name string) (string, error) {
	f, err := os.Open(name)
	if err != nil {
		return "", err
	}
	defer f.Close()
	h := sha256.New()
	if _, err := io.Copy(h, f); err != nil {
		return "", err
	}
	return hex.EncodeToString(h.Sum(nil)), nil
}

func copyFile(from, to string) error {
	data, err := os.ReadFile(from)
	if err != nil {
		return err
	}
	return os.WriteFile(to, data, 0o644)
}

// syncTree syncs everything under dir to disk: one syncfs instead of an fsync
// for each of thousands of files.
func syncTree(dir string) error {
	f, err := os.Open(dir)
	if err != nil {
		return err
	}
	defer f.Close()
	raw, err := f.SyscallConn()
	if err != nil {
		return err
	}
	var syncErr error
	if err := raw.Control(func(fd uintptr) { syncErr = unix.Syncfs(int(fd)) }); err != nil {
		return err
	}
	return syncErr
}

func exists(name string) bool {
	_, err := os.Lstat(name)
	return err == nil
}
