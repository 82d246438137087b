"""What can go wrong, by whom it is answered."""


class SettingsError(Exception):
    """A mounted file is wrong; the text names the file, the place and what is expected."""


class BadRequestError(Exception):
    """The body is no AdmissionReview that this server can answer: HTTP status and text."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status


class RefusalError(Exception):
    """A pod is refused; the text is for the person who created it, and names the way out."""

    def __init__(self, text: str, *, code: int = 422) -> None:
        super().__init__(text)
        self.code = code


class CertificateError(Exception):
    """A certificate can't be used; the one that is being served stays."""


class ApiError(Exception):
    """The API server refused a request, or could not be reached (status 0)."""

    def __init__(self, status: int, text: str) -> None:
        super().__init__(text)
        self.status = status
