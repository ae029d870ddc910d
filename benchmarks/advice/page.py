"""placeholder"""


def page(records):
    return ""
