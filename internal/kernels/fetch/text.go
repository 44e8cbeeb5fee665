package fetch

import (
	"encoding/json"
	"fmt"
)

// MarshalJSON encodes p as one object with a pattern for each role's name.
func (p Plan) MarshalJSON() ([]byte, error) {
	named := map[string]Pattern{}
	for r, pattern := range p {
		named[Role(r).String()] = pattern
	}
	return json.Marshal(named)
}

// UnmarshalJSON decodes the encoding of MarshalJSON. It returns an error if a role is missing or
// unknown, or has a pattern that its kernels do not implement.
func (p *Plan) UnmarshalJSON(data []byte) error {
	var named map[string]Pattern
	if err := json.Unmarshal(data, &named); err != nil {
		return err
	}
	var read Plan
	for r := range Roles {
		pattern, ok := named[r.String()]
		if !ok {
			return fmt.Errorf("fetch: the plan has no pattern for %s", r)
		}
		read[r] = pattern
		delete(named, r.String())
	}
	for name := range named {
		return fmt.Errorf("fetch: unknown role %q", name)
	}
	if err := read.Check(); err != nil {
		return err
	}
	*p = read
	return nil
}
