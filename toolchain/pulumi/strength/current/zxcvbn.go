// Package zxcvbn tells how strong a password is at most, without the dictionaries of the module that it replaces.
//
// Symptom: every pulumi command takes 0.1 s of processor time and 37 MB of memory before it begins. zxcvbn-go parses its
// dictionaries when a program starts, and pulumi has two versions of it. It uses them in `pulumi config set` and
// `pulumi env set` alone, which refuse a plain value that looks like a secret. Affected: pulumi 3.259.0 with zxcvbn-go
// v1.0.1, v1.0.4 too; not reported upstream. Without dictionaries more values look like a secret, none looks less like it.
package zxcvbn

import (
	"math"
	"unicode"
)

// Strength is what pulumi reads of the answer.
type Strength struct {
	// Entropy is in bits.
	Entropy float64
}

// PasswordStrength takes every character as chosen at random from the kinds that the password has. That is where
// zxcvbn-go begins too, before it finds words.
func PasswordStrength(password string, _ []string) Strength {
	var lower, upper, digits, others float64
	for _, character := range password {
		switch {
		case unicode.IsLower(character):
			lower = 26
		case unicode.IsUpper(character):
			upper = 26
		case unicode.IsDigit(character):
			digits = 10
		default:
			others = 33
		}
	}
	if password == "" {
		return Strength{}
	}
	return Strength{Entropy: float64(len(password)) * math.Log2(lower+upper+digits+others)}
}
