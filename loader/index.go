package loader

import (
	"errors"
	"fmt"
	"io/fs"
	"maps"
	"slices"
	"strings"
	"unicode/utf8"
)

// openIndex opens the shards that an index names. Tensors are read from where the shards hold
// them. A wrong index can name too few or other shards, but cannot lead outside of the folder or
// to other values.
func openIndex(from fileFolder, name string) (*Checkpoint, error) {
	text, err := from.read(name, maxHeader)
	if err != nil {
		return nil, err
	}
	weights, err := parseIndex(text)
	if err != nil {
		e := err.(*Error)
		e.File = name
		if d := from.label(); d != "" {
			e.File = d + "/" + name
		}
		return nil, e
	}
	seen := map[string]bool{}
	for _, shard := range weights {
		seen[shard] = true
	}
	shards := slices.Sorted(maps.Keys(seen))
	c, err := load(from, shards, weights)
	if errors.Is(err, fs.ErrNotExist) {
		return nil, absent(from, name, shards, err)
	}
	return c, err
}

// absent names the shards of an index that are not in its folder. If all are, it returns cause.
func absent(from fileFolder, index string, shards []string, cause error) error {
	names, err := from.names()
	if err != nil {
		return cause
	}
	missing := slices.DeleteFunc(slices.Clone(shards), func(shard string) bool { return slices.Contains(names, shard) })
	if len(missing) == 0 {
		return cause
	}
	return &Error{File: from.label() + "/" + index, Err: fs.ErrNotExist,
		Reason: fmt.Sprintf("%d of %d shards are missing, download the whole model (serve pull ORG/NAME does): %s", len(missing), len(shards), list(missing))}
}

// parseIndex parses the weight_map of an index: tensor name to shard. Everything else in it is a
// hint (total_size is wrong in some published files) and is skipped. Errors are *Error without
// File.
func parseIndex(text []byte) (map[string]string, error) {
	p := indexParser{scanner: newScanner(text, true)}
	err := error(nil)
	if !utf8.Valid(text) {
		err = errors.New("not UTF-8")
	}
	if err == nil {
		err = p.Object("an object", p.member)
	}
	if err == nil {
		err = p.end()
	}
	if err == nil && len(p.weights) == 0 {
		err = errors.New("no weight_map that names a shard")
	}
	if err != nil {
		return nil, &Error{Tensor: p.tensor, Reason: "index: " + err.Error()}
	}
	return p.weights, nil
}

type indexParser struct {
	scanner
	weights map[string]string
	shards  map[string]string // one string per shard, not per tensor
	tensor  string            // at which an error occurred
}

func (p *indexParser) member(key []byte) error {
	if string(key) != "weight_map" {
		return p.Skip()
	}
	if p.weights != nil {
		return p.fail("a second weight_map")
	}
	p.weights, p.shards = map[string]string{}, map[string]string{}
	return p.Object("weight_map to be an object", p.entry)
}

func (p *indexParser) entry(key []byte) error {
	p.tensor = string(key)
	b, err := p.String()
	if err != nil {
		return err
	}
	shard, ok := p.shards[string(b)]
	if !ok {
		shard = string(b)
		if reason := shardFile(shard); reason != "" {
			return p.fail("shard " + quoted(shard) + " " + reason)
		}
		p.shards[shard] = shard
	}
	if before, twice := p.weights[p.tensor]; twice && before != shard {
		return p.fail("named twice, in " + quoted(before) + " and in " + quoted(shard))
	}
	p.weights[p.tensor] = shard
	p.tensor = ""
	return nil
}

// shardFile returns the reason why name cannot be a shard next to the index, or "".
func shardFile(name string) string {
	if reason := plainName(name); reason != "" {
		return reason
	}
	if !strings.HasSuffix(name, safetensorsSuffix) {
		return "is not a .safetensors file"
	}
	return ""
}

// plainName returns the reason why name is not the plain name of a file in the current folder, or
// "". It rejects everything that an operating system may interpret as a path, drive or stream.
func plainName(name string) string {
	switch {
	case name == "":
		return "is empty"
	case name == "." || name == "..":
		return "leads out of the folder"
	case strings.ContainsAny(name, "/\\"):
		return "is a path, not a file in the folder"
	case strings.ContainsAny(name, ":\x00"):
		return "is not a plain file name"
	case len(name) > 255:
		return "is longer than a file name may be"
	}
	return ""
}
