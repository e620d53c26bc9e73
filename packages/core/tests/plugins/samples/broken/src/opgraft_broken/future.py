"""Written for the next major version."""

from opgraft.api import a_name_of_api_two

API = (2, 0)

print(a_name_of_api_two)
