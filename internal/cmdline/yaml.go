package cmdline

import (
	"errors"
	"fmt"
	"io"
	"io/fs"
	"maps"
	"regexp"
	"slices"
	"strings"

	"github.com/alecthomas/kong"
	"gopkg.in/yaml.v3"
)

// sources tells where flags that are not on the command line come from.
type sources struct {
	lookup func(string) (string, bool) // of the environment
	file   settings                    // of --config, if there is one
	app    *kong.Application
	hints  map[string]string // Program.Hints
}

// yaml reads flags from a YAML mapping: "max-memory: cpu=30GiB". A list is joined by
// commas, or, for a flag that is given again for each value, taken item by item. A key that is no
// flag of the command at hand is left to the others; one that is not a flag of any is a mistake.
func (s *sources) yaml(r io.Reader) (kong.Resolver, error) {
	name := "the configuration file"
	if f, ok := r.(interface{ Name() string }); ok {
		name = f.Name()
	}
	if f, ok := r.(fs.File); ok {
		if info, err := f.Stat(); err == nil && info.IsDir() {
			return nil, fmt.Errorf("--config %s: got a folder, want a YAML file", name)
		}
	}
	values := map[string]any{}
	var kind *yaml.TypeError
	switch err := yaml.NewDecoder(r).Decode(&values); {
	case errors.As(err, &kind) && strings.Contains(err.Error(), "into map["):
		return nil, fmt.Errorf("%s: got a list or a single value, want a line such as \"max-memory: cpu=30GiB\" for each flag", name)
	case err != nil && err != io.EOF:
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	s.file = settings{name, values}
	return s, s.file.validate(s.app, s.hints)
}

// variable is the environment variable that sets a flag, "" for none.
func (s *sources) variable(flag *kong.Flag) string {
	for _, name := range flag.Envs {
		if _, ok := s.lookup(name); ok {
			return name
		}
	}
	return ""
}

// origin is the variable or the file that set the flag with which a message begins, as the place of
// an error; "" for a flag of the command line.
func (s *sources) origin(node *kong.Node, args []string, message string) string {
	name := flagName.FindString(message)
	if name == "" || slices.ContainsFunc(args, func(arg string) bool { return arg == name || strings.HasPrefix(arg, name+"=") }) {
		return ""
	}
	for _, flags := range node.AllFlags(false) {
		for _, flag := range flags {
			if "--"+flag.Name != name {
				continue
			}
			if variable := s.variable(flag); variable != "" {
				return variable + ": "
			}
			if s.file.of(flag) != nil {
				return s.file.file + ": "
			}
		}
	}
	return ""
}

var flagName = regexp.MustCompile(`^--[a-z0-9-]+`)

// Resolve gives the value of a flag in the file, nil where it has none or the environment has one.
func (s *sources) Resolve(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
	if s.variable(flag) != "" {
		return nil, nil
	}
	return s.file.value(flag)
}

// Validate accepts all keys: yaml has refused those that are flags of no command.
func (s *sources) Validate(*kong.Application) error { return nil }

// settings are the values of a configuration file by the names of flags, with - or _.
type settings struct {
	file   string
	values map[string]any
}

// value gives the value of a flag, nil where the file has none.
func (s settings) value(flag *kong.Flag) (any, error) {
	switch v := s.of(flag).(type) {
	case nil:
		return nil, nil
	case []any:
		texts := make([]any, len(v))
		joined := make([]string, len(v))
		for i := range v {
			joined[i] = fmt.Sprint(v[i])
			texts[i] = joined[i]
		}
		if flag.IsSlice() && flag.Tag.Sep < 0 {
			return texts, nil
		}
		return strings.Join(joined, ","), nil
	case map[string]any:
		return nil, fmt.Errorf("%s: %s: got a mapping, want a value", s.file, flag.Name)
	default:
		return fmt.Sprint(v), nil
	}
}

// of is the value under a flag's name, or under an alias of it.
func (s settings) of(flag *kong.Flag) any {
	for _, name := range append([]string{flag.Name}, flag.Aliases...) {
		for _, key := range []string{name, strings.ReplaceAll(name, "-", "_")} {
			if v, ok := s.values[key]; ok {
				return v
			}
		}
	}
	return nil
}

// validate refuses keys that are flags of no command, all of them at once.
func (s settings) validate(app *kong.Application, hints map[string]string) error {
	known := map[string]bool{}
	var walk func(n *kong.Node)
	walk = func(n *kong.Node) {
		for _, flag := range n.Flags {
			for _, name := range append([]string{flag.Name}, flag.Aliases...) {
				known[dashed(name)] = true
			}
		}
		for _, child := range n.Children {
			walk(child)
		}
	}
	walk(app.Node)
	var all []unknown
	for _, key := range slices.Sorted(maps.Keys(s.values)) {
		if known[dashed(key)] {
			continue
		}
		hint := hints["--"+dashed(key)]
		if i := slices.IndexFunc(all, func(u unknown) bool { return u.hint == hint }); i >= 0 {
			all[i].keys = append(all[i].keys, key)
		} else {
			all = append(all, unknown{[]string{key}, hint})
		}
	}
	var errs []error
	for _, u := range all {
		errs = append(errs, u.err(s.file, app.Name))
	}
	return errors.Join(errs...)
}

// unknown is keys of a file that are no flags, and what to do instead, "" if nothing is known.
type unknown struct {
	keys []string
	hint string
}

func (u unknown) err(file, program string) error {
	text := "is not a flag of"
	if len(u.keys) > 1 {
		text = "are not flags of"
	}
	err := fmt.Errorf("%s: %s %s %s", file, strings.Join(u.keys, ", "), text, program)
	if u.hint != "" {
		err = fmt.Errorf("%w: %s", err, u.hint)
	}
	return err
}
