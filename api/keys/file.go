package keys

import (
	"bytes"
	"crypto/sha256"
	"encoding/hex"
	"errors"
	"fmt"
	"io"
	"strings"

	"gopkg.in/yaml.v3"
)

// An entry is one key of the file, which is a YAML list. A limit of 0 means none.
type entry struct {
	Name     string   `yaml:"name"`
	Key      string   `yaml:"key"`
	SHA256   string   `yaml:"sha256"` // hash of the key in hex, instead of the key
	Parallel int      `yaml:"max_concurrent_requests"`
	Requests int      `yaml:"requests_per_minute"`
	Tokens   int      `yaml:"tokens_per_minute"`
	Models   []string `yaml:"models"`
	Admin    bool     `yaml:"admin"`
}

// Limits of a file.
const (
	maxKeys  = 100000
	maxName  = 64
	maxLimit = 1_000_000_000
)

// parse reads the entries of a file. Errors name the entry, but never contain its key.
func parse(b []byte) ([]entry, error) {
	d := yaml.NewDecoder(bytes.NewReader(b))
	d.KnownFields(true)
	var list []entry
	const want = "want a list such as \"- {name: alice, key: SECRET}\""
	if err := d.Decode(&list); errors.Is(err, io.EOF) || err == nil && len(list) == 0 {
		return nil, errors.New("got no key, " + want)
	} else if err != nil && (strings.Contains(err.Error(), "into []keys.entry") || strings.Contains(err.Error(), "into keys.entry")) {
		return nil, errors.New("got no list of entries, " + want)
	} else if err != nil {
		return nil, withoutValues(err)
	}
	if len(list) > maxKeys {
		return nil, fmt.Errorf("got %d keys, want at most %d", len(list), maxKeys)
	}
	names, sums := map[string]bool{}, map[[sha256.Size]byte]string{}
	for i := range list {
		e := &list[i]
		if err := e.check(); err != nil {
			return nil, fmt.Errorf("entry %d (name %q): %w", i+1, e.Name, err)
		}
		if names[e.Name] {
			return nil, fmt.Errorf("entry %d: got the name %q twice", i+1, e.Name)
		}
		if other, ok := sums[e.sum()]; ok {
			return nil, fmt.Errorf("entry %d: %q and %q have the same key", i+1, other, e.Name)
		}
		names[e.Name], sums[e.sum()] = true, e.Name
	}
	return list, nil
}

// withoutValues removes the values that YAML's errors quote, because they may be keys.
func withoutValues(err error) error {
	var wrong *yaml.TypeError
	if !errors.As(err, &wrong) {
		return errors.New("the file is not valid YAML")
	}
	lines := make([]string, len(wrong.Errors))
	for i, line := range wrong.Errors {
		before, rest, quoted := strings.Cut(line, "`")
		if _, after, ok := strings.Cut(rest, "`"); quoted && ok {
			line = before + "a value" + after
		}
		lines[i] = line
	}
	return errors.New(strings.Join(lines, "; "))
}

func (e *entry) check() error {
	switch {
	case e.Name == "" || len(e.Name) > maxName || strings.ContainsFunc(e.Name, unprintable):
		return fmt.Errorf("got name %q, want 1 to %d printable characters without spaces", e.Name, maxName)
	case (e.Key == "") == (e.SHA256 == ""):
		return errors.New("want either key or sha256")
	case strings.ContainsFunc(e.Key, unprintable):
		return errors.New("the key has spaces or characters that are not ASCII, which no header can send")
	}
	if e.SHA256 != "" {
		if b, err := hex.DecodeString(e.SHA256); err != nil || len(b) != sha256.Size {
			return errors.New("sha256: want 64 hexadecimal digits")
		}
	}
	for _, l := range []struct {
		name  string
		value int
	}{{"max_concurrent_requests", e.Parallel}, {"requests_per_minute", e.Requests}, {"tokens_per_minute", e.Tokens}} {
		if l.value < 0 || l.value > maxLimit {
			return fmt.Errorf("%s: got %d, want 1 to %d, or 0 for no limit", l.name, l.value, maxLimit)
		}
	}
	for _, m := range e.Models {
		if m == "" {
			return errors.New("models: a name is empty")
		}
	}
	return nil
}

func unprintable(c rune) bool { return c <= ' ' || c > '~' }

// sum returns the hash by which the key is found.
func (e *entry) sum() (sum [sha256.Size]byte) {
	if e.SHA256 == "" {
		return sha256.Sum256([]byte(e.Key))
	}
	b, _ := hex.DecodeString(e.SHA256) // already checked
	return [sha256.Size]byte(b)
}
