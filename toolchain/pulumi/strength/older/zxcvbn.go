// Package zxcvbn is the one beside it under its older name.
package zxcvbn

import "github.com/ccojocar/zxcvbn-go"

// PasswordStrength is that one's.
var PasswordStrength = zxcvbn.PasswordStrength
