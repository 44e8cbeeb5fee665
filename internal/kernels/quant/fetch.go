package quant

import "github.com/heftai/heft/internal/kernels/fetch"

// FetchRole returns the role of the kernels that multiply weights of p, which is Q8 or Q4, by one
// token.
func (p Packing) FetchRole() fetch.Role {
	if p == Q4 {
		return fetch.Q4
	}
	return fetch.Q8
}
