// Package limit tests that models of package dispatch keep to a memory limit that changes, alone
// or shared, and that their answers stay the same bit for bit.
package limit
