package hub

import (
	"cmp"
	"errors"
	"io/fs"
	"net/http"
	"net/url"
	"os"
	"path/filepath"
	"slices"
	"strings"
	"syscall"

	"github.com/heftai/heft/internal/hubcache"
)

// DefaultEndpoint is the public hub.
const DefaultEndpoint = "https://huggingface.co"

// A Config says which hub and which cache a [Client] uses.
type Config struct {
	Cache       string                                // folder of the cache, such as ~/.cache/huggingface/hub
	Endpoint    string                                // empty: DefaultEndpoint
	Token       string                                // sent to the endpoint; empty: none
	Offline     bool                                  // never use the network
	UserAgent   string                                // empty: "heft"
	Proxy       func(*http.Request) (*url.URL, error) // nil: none
	Connections int                                   // most requests at a time; 0: 8
	Retries     int                                   // most failures of a request in a row; 0: 6
}

// Environment returns a Config from the variables that the Python package huggingface_hub
// reads, with its meaning and order of precedence:
//
//	cache      HF_HUB_CACHE, HUGGINGFACE_HUB_CACHE, HF_HOME/hub, XDG_CACHE_HOME/huggingface/hub, ~/.cache/huggingface/hub
//	endpoint   HF_ENDPOINT
//	token      HF_TOKEN, HUGGING_FACE_HUB_TOKEN, the file HF_TOKEN_PATH or HF_HOME/token; none with HF_HUB_DISABLE_IMPLICIT_TOKEN
//	offline    HF_HUB_OFFLINE, TRANSFORMERS_OFFLINE
//
// getenv is os.Getenv or a stand-in; home is the user's folder, for ~. A token file that
// is there and cannot be read is an error.
func Environment(getenv func(string) string, home string) (Config, error) {
	first := func(names ...string) string {
		for _, name := range names {
			if v := getenv(name); v != "" {
				return v
			}
		}
		return ""
	}
	root := hubcache.Root(getenv, home)
	c := Config{
		Cache:    hubcache.Dir(getenv, home),
		Endpoint: getenv("HF_ENDPOINT"),
		Offline:  isTrue(first("HF_HUB_OFFLINE", "TRANSFORMERS_OFFLINE")),
	}
	if isTrue(getenv("HF_HUB_DISABLE_IMPLICIT_TOKEN")) {
		return c, nil
	}
	if c.Token = oneLine(first("HF_TOKEN", "HUGGING_FACE_HUB_TOKEN")); c.Token != "" {
		return c, nil
	}
	path := hubcache.Expand(getenv("HF_TOKEN_PATH"), getenv, home)
	if path == "" {
		path = filepath.Join(root, "token")
	}
	b, err := os.ReadFile(path)
	if err != nil && !absent(err) {
		return c, &Error{Kind: Disk, Reason: "reading the token", Err: err}
	}
	c.Token = oneLine(string(b))
	return c, nil
}

// UserEnvironment is [Environment] for this process and its user.
func UserEnvironment() (Config, error) {
	return Environment(os.Getenv, cmp.Or(hubcache.Home(), "."))
}

// isTrue is how the Python package reads a switch.
func isTrue(s string) bool {
	return slices.Contains([]string{"1", "ON", "YES", "TRUE"}, strings.ToUpper(s))
}

// oneLine drops the line ends that editors leave in a token.
func oneLine(s string) string {
	return strings.TrimSpace(strings.NewReplacer("\r", "", "\n", "").Replace(s))
}

// absent reports whether err says that a file or a folder of its path does not exist. A parent that
// is no folder (HOME=/dev/null) counts.
func absent(err error) bool { return errors.Is(err, fs.ErrNotExist) || errors.Is(err, syscall.ENOTDIR) }
