package main

import (
	"io"
	"log/slog"
	"net/netip"
	"strings"

	"github.com/heftai/heft/api"
	"github.com/heftai/heft/internal/cmdline"
)

// accessFlags limit which clients may use the server.
type accessFlags struct {
	APIKey      *string `name:"api-key" help:"Require one of these keys; prefer HEFT_API_KEY: command lines are visible." placeholder:"K,…"`
	AdminKey    string  `name:"admin-key" help:"Allow these keys to load and unload; prefer HEFT_ADMIN_KEY." placeholder:"K,…"`
	AllowedHost string  `name:"allowed-host" help:"On a loopback address, accept these Host names too; * accepts any." placeholder:"NAME,…"`
	CORSOrigin  string  `name:"cors-origin" help:"Allow web pages of these origins; * allows any." placeholder:"ORIGIN,…"`
	LogFormat   string  `name:"log-format" help:"Write the log in this format (default ${default})." enum:"text,json" default:"text" placeholder:"text|json"`
}

// plainKeys returns the keys of --api-key.
func (f *accessFlags) plainKeys() []string {
	if f.APIKey == nil {
		return nil
	}
	return split(*f.APIKey)
}

// access returns the clients that the flags allow. The name in --host is always allowed.
func (f *accessFlags) access(host string) api.Access {
	a := api.Access{Origins: split(f.CORSOrigin), Hosts: split(f.AllowedHost)}
	if _, err := netip.ParseAddr(host); err != nil && host != "" {
		a.Hosts = append(a.Hosts, host)
	}
	return a
}

// check rejects invalid values.
func (f *accessFlags) check() error {
	if f.APIKey != nil && *f.APIKey != "" && len(f.plainKeys()) == 0 {
		return cmdline.Misusef("--api-key: got %q, want one or more keys separated by commas", *f.APIKey)
	}
	if f.AdminKey != "" && len(split(f.AdminKey)) == 0 {
		return cmdline.Misusef("--admin-key: got %q, want one or more keys separated by commas", f.AdminKey)
	}
	a := f.access("")
	if err := a.Check(); err != nil {
		return cmdline.Misusef("--cors-origin, --allowed-host: %w", err)
	}
	return nil
}

// warn warns that an empty key means no key. A script whose variable was not set expects one.
func (f *accessFlags) warn() {
	if f.APIKey != nil && *f.APIKey == "" {
		slog.Warn("--api-key is empty: requests need no key")
	}
}

// handler returns the handler that writes the log to out.
func (f *accessFlags) handler(level slog.Level, out io.Writer) slog.Handler {
	options := &slog.HandlerOptions{Level: level}
	if f.LogFormat == "json" {
		return slog.NewJSONHandler(out, options)
	}
	return slog.NewTextHandler(out, options)
}

// split splits a list at commas and drops empty entries.
func split(list string) []string {
	var out []string
	for e := range strings.SplitSeq(list, ",") {
		if e = strings.TrimSpace(e); e != "" {
			out = append(out, e)
		}
	}
	return out
}
