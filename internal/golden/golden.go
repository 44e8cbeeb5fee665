// Package golden reads the reference fixtures that the TestGolden tests compare with.
//
// A root holds the folders infer, text and train. It is HEFT_GOLDEN if set, else
// ../shared/golden beside the checkout, else the project's own testdata/golden, a
// small selection made by committed scripts. Tests discover cases by glob and
// manifest below a root; a file may be gzipped, and what is absent counts as no
// case. It knows nothing of what the fixtures mean.
package golden

import (
	"bytes"
	"compress/gzip"
	"encoding/json"
	"fmt"
	"io"
	"os"
	"path/filepath"
	"sort"
	"strings"
	"testing"
)

// Root is the folder that holds infer/, text/ and train/.
func Root(t testing.TB) string {
	t.Helper()
	if dir := os.Getenv("HEFT_GOLDEN"); dir != "" {
		return dir
	}
	top := Module(t)
	if dir := filepath.Join(top, "..", "shared", "golden"); isDir(dir) {
		return dir
	}
	return filepath.Join(top, "testdata", "golden")
}

// Module is the root folder of the checkout, found from the test's working folder.
func Module(t testing.TB) string {
	t.Helper()
	dir, err := os.Getwd()
	if err != nil {
		t.Fatal(err)
	}
	for {
		if _, err := os.Stat(filepath.Join(dir, "go.mod")); err == nil {
			return dir
		}
		up := filepath.Dir(dir)
		if up == dir {
			t.Fatal("golden: no go.mod above the test's folder")
		}
		dir = up
	}
}

func isDir(dir string) bool {
	info, err := os.Stat(dir)
	return err == nil && info.IsDir()
}

// Path joins elem below Root.
func Path(t testing.TB, elem ...string) string {
	t.Helper()
	return filepath.Join(append([]string{Root(t)}, elem...)...)
}

// Own joins elem below Root where that exists, and else below the fixtures of this repository. It is for those that
// only this repository has.
func Own(t testing.TB, elem ...string) string {
	t.Helper()
	path := Path(t, elem...)
	if _, err := os.Stat(path); err == nil {
		return path
	}
	return filepath.Join(append([]string{Module(t), "testdata", "golden"}, elem...)...)
}

// Glob lists the files below Root that match pattern or pattern.gz, sorted, one
// entry a file (always without ".gz": [Read] finds the stored one). It fails the test if
// no root of the project has such a file.
func Glob(t testing.TB, pattern string) []string {
	t.Helper()
	seen := map[string]bool{}
	var files []string
	for _, suffix := range []string{"", ".gz"} {
		found, err := filepath.Glob(Path(t, pattern) + suffix)
		if err != nil {
			t.Fatal(err)
		}
		for _, f := range found {
			f = strings.TrimSuffix(f, ".gz")
			if !seen[f] {
				seen[f] = true
				files = append(files, f)
			}
		}
	}
	if len(files) == 0 {
		mustExist(t, Path(t, pattern))
	}
	sort.Strings(files)
	return files
}

// Read returns the bytes of path, or of path.gz unpacked. A missing file is
// fs.ErrNotExist.
func Read(path string) ([]byte, error) {
	b, err := os.ReadFile(path)
	if os.IsNotExist(err) {
		b, err = os.ReadFile(path + ".gz")
	}
	if err != nil {
		return nil, err
	}
	if b, err = Unpack(b); err != nil {
		return nil, fmt.Errorf("%s: %w", path, err)
	}
	return b, nil
}

// Unpack returns what b holds: gzip data unpacked, other data as it is.
func Unpack(b []byte) ([]byte, error) {
	if len(b) < 2 || b[0] != 0x1f || b[1] != 0x8b {
		return b, nil
	}
	z, err := gzip.NewReader(bytes.NewReader(b))
	if err != nil {
		return nil, err
	}
	return io.ReadAll(z)
}

// JSON reads path (or path.gz) into v and reports whether it is there. A broken
// file fails the test, and so does a path that no root of the project has.
func JSON(t testing.TB, path string, v any) bool {
	t.Helper()
	b, err := Read(path)
	if os.IsNotExist(err) {
		mustExist(t, path)
		return false
	}
	if err == nil {
		err = json.Unmarshal(b, v)
	}
	if err != nil {
		t.Fatalf("golden: %s: %v", path, err)
	}
	return true
}

// Count prints how many cases of folder ran, in the form that CI reads.
func Count(t testing.TB, folder string, n int) {
	t.Helper()
	fmt.Printf("golden %s: %d cases\n", folder, n)
}
