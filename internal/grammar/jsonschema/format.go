package jsonschema

import (
	"github.com/heftai/heft/internal/grammar"
	"github.com/heftai/heft/internal/grammar/dfa"
	"github.com/heftai/heft/internal/grammar/jsontext"
	"github.com/heftai/heft/internal/grammar/regex"
)

// format describes the strings of a format.
type format struct {
	pattern string
	most    int // characters; 0: any number
}

const (
	hour   = `(?:[01][0-9]|2[0-3]):[0-5][0-9]`
	clock  = hour + `:[0-5][0-9](?:\.[0-9]{1,9})?(?:Z|[+-]` + hour + `)`
	date   = `(?:[0-9]{4}-(?:(?:0[13578]|1[02])-(?:0[1-9]|[12][0-9]|3[01])|(?:0[469]|11)-(?:0[1-9]|[12][0-9]|30)|02-(?:0[1-9]|1[0-9]|2[0-8]))|` + leapDay + `)`
	leap   = `(?:[0-9]{2}(?:0[48]|[2468][048]|[13579][26])|(?:[02468][048]|[13579][26])00)`
	octet  = `(?:25[0-5]|2[0-4][0-9]|1[0-9]{2}|[1-9]?[0-9])`
	ipv4   = octet + `(?:\.` + octet + `){3}`
	group  = `[0-9A-Fa-f]{1,4}`
	pair   = `(?:` + group + `:` + group + `|` + ipv4 + `)`
	label  = `[A-Za-z0-9](?:[A-Za-z0-9-]{0,61}[A-Za-z0-9])?`
	domain = label + `(?:\.` + label + `)*`
	local  = "[A-Za-z0-9!#$%&'*+/=?^_`{|}~-]+"

	leapDay = leap + `-02-29`

	ipv6 = `(?:(?:` + group + `:){6}` + pair +
		`|::(?:` + group + `:){5}` + pair +
		`|(?:` + group + `)?::(?:` + group + `:){4}` + pair +
		`|(?:(?:` + group + `:){0,1}` + group + `)?::(?:` + group + `:){3}` + pair +
		`|(?:(?:` + group + `:){0,2}` + group + `)?::(?:` + group + `:){2}` + pair +
		`|(?:(?:` + group + `:){0,3}` + group + `)?::` + group + `:` + pair +
		`|(?:(?:` + group + `:){0,4}` + group + `)?::` + pair +
		`|(?:(?:` + group + `:){0,5}` + group + `)?::` + group +
		`|(?:(?:` + group + `:){0,6}` + group + `)?::)`

	// RFC 3986.
	escape    = `%[0-9A-Fa-f]{2}`
	segment   = `(?:[A-Za-z0-9\-._~!$&'()*+,;=:@]|` + escape + `)`
	authority = `(?:(?:[A-Za-z0-9\-._~!$&'()*+,;=:]|` + escape + `)*@)?(?:\[` + ipv6 + `\]|(?:[A-Za-z0-9\-._~!$&'()*+,;=]|` + escape + `)*)(?::[0-9]*)?`
	tail      = `(?:\?(?:` + segment + `|[/?])*)?(?:#(?:` + segment + `|[/?])*)?`
	hierarchy = `(?://` + authority + `(?:/` + segment + `*)*|/(?:` + segment + `+(?:/` + segment + `*)*)?`
	uri       = `[A-Za-z][A-Za-z0-9+.\-]*:` + hierarchy + `|` + segment + `+(?:/` + segment + `*)*)?` + tail
	relative  = hierarchy + `|(?:[A-Za-z0-9\-._~!$&'()*+,;=@]|` + escape + `)+(?:/` + segment + `*)*)?` + tail

	pointer = `(?:/(?:[^/~]|~[01])*)*`

	days  = `(?:[0-9]+D|[0-9]+M(?:[0-9]+D)?|[0-9]+Y(?:[0-9]+M(?:[0-9]+D)?)?)`
	times = `T(?:[0-9]+S|[0-9]+M(?:[0-9]+S)?|[0-9]+H(?:[0-9]+M(?:[0-9]+S)?)?)`
)

// formats are the formats of JSON Schema that are enforced.
var formats = map[string]format{
	"date":                  {pattern: `^(?!0000)` + date + `$`},
	"date-time":             {pattern: `^(?!0000)` + date + `T` + clock + `$`},
	"time":                  {pattern: `^` + clock + `$`},
	"duration":              {pattern: `^P(?:` + days + `(?:` + times + `)?|` + times + `|[0-9]+W)$`},
	"email":                 {pattern: `^` + local + `(?:\.` + local + `)*@` + domain + `$`},
	"hostname":              {pattern: `^` + domain + `$`, most: 253},
	"ipv4":                  {pattern: `^` + ipv4 + `$`},
	"ipv6":                  {pattern: `^` + ipv6 + `$`},
	"uuid":                  {pattern: `^[0-9A-Fa-f]{8}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{4}-[0-9A-Fa-f]{12}$`},
	"uri":                   {pattern: `^` + uri + `$`},
	"uri-reference":         {pattern: `^(?:` + uri + `|` + relative + `)$`},
	"json-pointer":          {pattern: `^` + pointer + `$`},
	"relative-json-pointer": {pattern: `^(?:0|[1-9][0-9]*)(?:#|` + pointer + `)$`},
}

// refusedFormats are the formats of JSON Schema that cannot be enforced.
var refusedFormats = map[string]bool{"idn-email": true, "idn-hostname": true, "iri": true, "iri-reference": true, "uri-template": true, "regex": true}

// formatOf reports whether a format restricts strings. Names that JSON Schema does not define say
// nothing, as the specification has it.
func formatOf(name, path string) (known bool, err error) {
	if refusedFormats[name] {
		return false, fail(path, "the format %q is not supported", name)
	}
	_, known = formats[name]
	return known, nil
}

// formatDFA returns the automaton of a format, which is made once for each vocabulary.
func (c *compiler) formatDFA(name string) *dfa.DFA { return formatIn(c.b.Library(), name) }

// Prepare makes the automata of all formats, which takes some milliseconds. Otherwise the first
// schema with a format waits for them.
func Prepare(lib *grammar.Library) {
	for name := range formats {
		formatIn(lib, name)
	}
}

func formatIn(lib *grammar.Library, name string) *dfa.DFA {
	t := lib.NamedDFA("format "+name, func(budget *dfa.Budget) (*dfa.DFA, error) {
		return regex.Quoted(formats[name].pattern, jsontext.Char, budget)
	})
	return t.DFA()
}
