package main

import (
	"os"
	"path/filepath"
	"strings"

	"github.com/heftai/heft/devicemap"
	"github.com/heftai/heft/dispatch"
	"github.com/heftai/heft/internal/cmdline"
	"github.com/heftai/heft/internal/lora"
)

// adapterFlags name the adapters to serve with the model.
type adapterFlags struct {
	Lora []string `help:"Serve this PEFT adapter of MODEL (default: the first) as NAME; may repeat." aliases:"lora-modules" sep:"none" placeholder:"[MODEL/]NAME=DIR"`
}

// loraDirFlags configure the adapters that are loaded on demand.
type loraDirFlags struct {
	LoraDir    string `help:"Serve each PEFT adapter in DIR; clients may load and unload more from it." placeholder:"DIR"`
	LoraMemory string `help:"Limit the memory of adapters of --lora-dir (default: a sixteenth of the limit)." placeholder:"SIZE"`
}

// An otherAdapter is an adapter of a model other than the first one.
type otherAdapter struct {
	model string
	dispatch.Adapter
}

// adapters returns the adapters that --lora names, of the first model and of others. models are the
// names of all models, starting with the first one.
func (c *adapterFlags) adapters(models ...string) (list []dispatch.Adapter, others []otherAdapter, err error) {
	taken := map[string]bool{}
	for _, name := range models {
		taken[name] = true
	}
	for _, text := range lines(c.Lora) {
		name, dir, ok := strings.Cut(text, "=")
		model := modelOf(name, models)
		if model != "" {
			name = name[len(model)+1:]
		}
		switch {
		case !ok || name == "" || dir == "":
			return nil, nil, cmdline.Misusef("--lora: got %q, want NAME=DIR or MODEL/NAME=DIR", text)
		case taken[name]:
			return nil, nil, cmdline.Misusef("--lora %s: the name %s is taken", text, name)
		}
		taken[name] = true
		a := dispatch.Adapter{Name: name, Dir: dir}
		if model == "" || model == models[0] {
			list = append(list, a)
			continue
		}
		if _, err := os.Stat(filepath.Join(dir, lora.ConfigFile)); err != nil { // the rest is read with the model
			return nil, nil, cmdline.Misusef("--lora %s: %w", text, err)
		}
		others = append(others, otherAdapter{model, a})
	}
	return list, others, nil
}

// modelOf returns the longest model name that is a prefix of text as in MODEL/NAME, or "" if there
// is none.
func modelOf(text string, models []string) (longest string) {
	for _, m := range models {
		if strings.HasPrefix(text, m+"/") && len(m) > len(longest) {
			longest = m
		}
	}
	return longest
}

// dynamic returns the names of the adapters in --lora-dir, and the memory for those in use under a
// limit of the host's memory. more means that there are further adapters that are loaded on demand.
func (c *loraDirFlags) dynamic(limit int64, more bool) (names []string, memory int64, err error) {
	if c.LoraDir == "" && !more {
		if c.LoraMemory != "" {
			return nil, 0, cmdline.Misusef("got --lora-memory without adapters that load on demand, want --lora-dir or --lora MODEL/NAME=DIR too")
		}
		return nil, 0, nil
	}
	if c.LoraDir != "" {
		if names, err = lora.List(c.LoraDir); err != nil {
			return nil, 0, cmdline.Misusef("--lora-dir: %w", err)
		}
	}
	if memory = limit / loraShare; c.LoraMemory != "" {
		if memory, err = devicemap.ParseSize(c.LoraMemory); err != nil || memory <= 0 {
			return nil, 0, cmdline.Misusef("--lora-memory %q: want a size such as 256MiB", c.LoraMemory)
		}
	}
	return names, memory, nil
}

// loraShare is the divisor of the host's memory for adapters on demand: they may take 1/loraShare
// of it.
const loraShare = 16
