package cmdline

import (
	"fmt"
	"io"
	"strings"

	"github.com/alecthomas/kong"
	"gopkg.in/yaml.v3"
)

// yamlResolver reads flags from a YAML mapping: "max-memory: cpu=30GiB". A list is
// joined by commas. A key that is no flag of the command at hand is left to the others.
func yamlResolver(r io.Reader) (kong.Resolver, error) {
	name := "the configuration file"
	if f, ok := r.(interface{ Name() string }); ok {
		name = f.Name()
	}
	values := map[string]any{}
	if err := yaml.NewDecoder(r).Decode(&values); err != nil && err != io.EOF {
		return nil, fmt.Errorf("%s: %w", name, err)
	}
	return kong.ResolverFunc(func(_ *kong.Context, _ *kong.Path, flag *kong.Flag) (any, error) {
		v, ok := values[flag.Name]
		if !ok {
			v, ok = values[strings.ReplaceAll(flag.Name, "-", "_")]
		}
		if !ok || v == nil {
			return nil, nil
		}
		switch v := v.(type) {
		case []any:
			texts := make([]string, len(v))
			for i := range v {
				texts[i] = fmt.Sprint(v[i])
			}
			return strings.Join(texts, ","), nil
		case map[string]any:
			return nil, fmt.Errorf("%s: %s is a mapping, where a value is wanted", name, flag.Name)
		}
		return fmt.Sprint(v), nil
	}), nil
}
