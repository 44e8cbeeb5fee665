package main

import (
	"fmt"
	"io"
	"sort"
	"strings"

	"github.com/alecthomas/kong"

	"github.com/heftai/heft/internal/cmdline"
)

// completionCmd is serve completion. It prints a script that completes commands and flags in a
// shell.
type completionCmd struct {
	Shell string `arg:"" help:"Print the script for bash, zsh or fish." enum:"bash,zsh,fish"`
}

// Run prints the script. Use it by: source <(serve completion bash).
func (c *completionCmd) Run(k *kong.Kong, out cmdline.Output) error {
	words := completions(k.Model.Node)
	switch c.Shell {
	case "fish":
		return fish(out, words)
	case "zsh":
		if _, err := fmt.Fprint(out, "#compdef serve\nautoload -U +X bashcompinit && bashcompinit\n"); err != nil {
			return err
		}
	}
	return bash(out, words)
}

// commandWords are the words that may follow a command. The unnamed command is serve itself.
type commandWords struct {
	name, help string
	flags      []flagWords
}

type flagWords struct {
	name, help string
	values     []string // "" for files
	takes      bool
}

func completions(root *kong.Node) []commandWords {
	all := []commandWords{{}}
	for _, child := range root.Children {
		if child.Hidden {
			continue
		}
		words := commandWords{name: child.Name, help: child.Help}
		for _, f := range append(append([]*kong.Flag(nil), root.Flags...), child.Flags...) {
			if !f.Hidden {
				words.flags = append(words.flags, flagWords{f.Name, f.Help, enumOf(f), !f.IsBool()})
			}
		}
		sort.Slice(words.flags, func(i, j int) bool { return words.flags[i].name < words.flags[j].name })
		if child == root.DefaultCmd {
			all[0].flags = words.flags
			continue
		}
		all = append(all, words)
	}
	return all
}

func enumOf(f *kong.Flag) []string {
	if f.Enum == "" {
		return nil
	}
	return strings.Split(f.Enum, ",")
}

func bash(w io.Writer, all []commandWords) error {
	var b strings.Builder
	b.WriteString("_serve() {\n\tlocal word=${COMP_WORDS[COMP_CWORD]} before=${COMP_WORDS[COMP_CWORD-1]} flags commands=\"\"\n\tcase ${COMP_WORDS[1]} in\n")
	for _, c := range append(all[1:], all[0]) {
		pattern := c.name
		if pattern == "" {
			pattern = "*"
		}
		fmt.Fprintf(&b, "\t%s) flags=\"%s\" ;;\n", pattern, strings.Join(flagNames(c), " "))
	}
	b.WriteString("\tesac\n\t[ \"$COMP_CWORD\" = 1 ] && commands=\"")
	for i, c := range all[1:] {
		if i > 0 {
			b.WriteString(" ")
		}
		b.WriteString(c.name)
	}
	b.WriteString("\"\n\tcase $before in\n")
	seen := map[string]bool{}
	for _, c := range all {
		for _, f := range c.flags {
			if len(f.values) > 0 && !seen[f.name] {
				seen[f.name] = true
				fmt.Fprintf(&b, "\t--%s) COMPREPLY=($(compgen -W \"%s\" -- \"$word\")); return ;;\n", f.name, strings.Join(f.values, " "))
			}
		}
	}
	b.WriteString("\tesac\n\tcase $word in\n\t-*) COMPREPLY=($(compgen -W \"$flags\" -- \"$word\")) ;;\n" +
		"\t*) COMPREPLY=($(compgen -W \"$commands\" -f -- \"$word\")) ;;\n\tesac\n}\ncomplete -o filenames -F _serve serve\n")
	_, err := io.WriteString(w, b.String())
	return err
}

func flagNames(c commandWords) []string {
	names := make([]string, len(c.flags))
	for i, f := range c.flags {
		names[i] = "--" + f.name
	}
	return names
}

func fish(w io.Writer, all []commandWords) error {
	var b strings.Builder
	for _, c := range all {
		when := "__fish_use_subcommand"
		if c.name != "" {
			fmt.Fprintf(&b, "complete -c serve -n __fish_use_subcommand -a %s -d %s\n", c.name, quote(c.help))
			when = "__fish_seen_subcommand_from " + c.name
		}
		for _, f := range c.flags {
			fmt.Fprintf(&b, "complete -c serve -n %s -l %s -d %s", quote(when), f.name, quote(f.help))
			if f.takes {
				b.WriteString(" -r")
			}
			if len(f.values) > 0 {
				fmt.Fprintf(&b, " -f -a %s", quote(strings.Join(f.values, " ")))
			}
			b.WriteByte('\n')
		}
	}
	_, err := io.WriteString(w, b.String())
	return err
}

func quote(s string) string {
	return "'" + strings.NewReplacer(`\`, `\\`, `'`, `\'`).Replace(s) + "'"
}
